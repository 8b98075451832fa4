"""The pieces of a transformer for every target: matrices stored by their entries, rows that read lanes, heads and
units, sublayers and loops of them as torch modules.
"""
