"""Vectors as data: bytes, and what must come of them. `python -m tests.vectors` writes those that are generated."""
