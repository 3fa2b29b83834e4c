"""Models that transformers loads into this process."""

from .backend import TransformersBackend

__all__ = ["TransformersBackend"]
