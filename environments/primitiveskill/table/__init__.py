"""Embedded tabletop: pick, place and push as rules about boxes."""
