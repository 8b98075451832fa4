"""From an algorithm to a record of what compiling makes, and how it is run and kept."""
