"""Renderer of the embedded tabletop."""
