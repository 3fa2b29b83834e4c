"""Targets: icon-like pictures from a random stream."""
