"""Sokoban: walled rooms of boxes and targets (spec section 2)."""

from .environment import LEGEND, SokobanConfig, SokobanEnv

__all__ = ["LEGEND", "SokobanConfig", "SokobanEnv"]
