"""Interpretations of a program: the same instructions, other numbers."""
