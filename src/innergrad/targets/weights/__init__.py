"""What a transformer is made of, whatever the target: matrices stored by their entries, rows that read lanes, heads and
units, sublayers and loops of them as torch modules.
"""
