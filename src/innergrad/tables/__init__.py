"""Tables of the user's own: read as spreadsheets write them, scored by cross-validation, and kept."""
