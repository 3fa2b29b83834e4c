"""Sokoban: walled rooms of boxes and targets."""

from .environment import SokobanConfig, SokobanEnv

__all__ = ["SokobanConfig", "SokobanEnv"]
