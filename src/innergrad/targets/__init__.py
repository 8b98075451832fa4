"""Target architectures: how a program becomes the weights of a transformer. One file each."""
