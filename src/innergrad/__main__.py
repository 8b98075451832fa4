"""``python -m innergrad``: the same as the command ``innergrad``."""

from innergrad.cli import main

main()
