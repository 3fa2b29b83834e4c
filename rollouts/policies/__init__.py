"""Policies that act through a chat model."""

from .model import ModelPolicy

__all__ = ["ModelPolicy"]
