"""From an algorithm to a compiled record, and the ways to run and keep it."""
