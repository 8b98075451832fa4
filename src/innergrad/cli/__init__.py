"""The command line. Commands import what they need when they run, so that ``--help`` does not load torch."""

from innergrad.cli.app import main

__all__ = ["main"]
