"""What the papers state, as functions."""
