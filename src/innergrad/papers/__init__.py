"""What the papers state, as functions (``resources``); and their experiments, as figures (``catalogue``)."""
