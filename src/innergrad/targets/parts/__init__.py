"""The parts of which a target is a row: norms, attentions, MLPs, product layers, positions, functions.

Each has its abilities (``can``), the reasons why it cannot do an instruction, and the way an instruction becomes its
weights.
"""
