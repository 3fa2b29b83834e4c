"""Models behind an OpenAI-compatible server."""

from .backend import OpenAIBackend

__all__ = ["OpenAIBackend"]
