"""Engines: what generates replies while a model is trained."""

from .in_process import InProcessBackend

__all__ = ["InProcessBackend"]
