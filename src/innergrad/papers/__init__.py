"""Statements of the papers, as functions."""
