"""The picture of the embedded tabletop."""
