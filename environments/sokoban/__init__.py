"""Sokoban: walled rooms of boxes and targets."""

from .environment import LEGEND, SokobanConfig, SokobanEnv

__all__ = ["LEGEND", "SokobanConfig", "SokobanEnv"]
