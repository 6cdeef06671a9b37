"""Hostile bytes for every parser: one list of targets, one mutator, driven by Hypothesis in CI or by chance."""
