"""Policies that act through a chat model, and the name of those that are in training."""

from .model import ModelPolicy
from .trained import NAME, TrainedPolicy

__all__ = ["NAME", "ModelPolicy", "TrainedPolicy"]
