"""Scalar functions as sums of a transformer's own non-linearity, fitted: errors are measured, not proven."""
