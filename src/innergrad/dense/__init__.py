"""The transformer as torch modules: matrices stored by their entries, sublayers, loops. Any target is made of these."""
