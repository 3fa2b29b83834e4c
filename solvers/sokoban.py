"""Sokoban solver (basic form)."""

from .sokoban_levels import SokobanDistances, sample_level
from .sokoban_text import SokobanLevel, parse_level

__all__ = ["SokobanDistances", "SokobanLevel", "parse_level", "sample_level"]
