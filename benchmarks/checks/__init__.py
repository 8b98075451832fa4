"""Checks of what is stored under results/ and said of it in docs/: a module for each benchmark, a function a check."""
