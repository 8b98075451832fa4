"""The parts of which a target is a row: norms, attentions, MLPs, product layers, positions, functions.

Each says what it can do (``can``), why it cannot do an instruction, and how an instruction becomes its weights.
"""
