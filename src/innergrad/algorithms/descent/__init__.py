"""Gradient descent on a network as programs: one module for each way to write it."""
