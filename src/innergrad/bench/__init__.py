"""Speed, always as a ratio against the fastest rival in the same run."""
