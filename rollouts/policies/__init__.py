"""Policies that act through a chat model, and the policy name of models in training."""

from .model import ModelPolicy
from .trained import NAME, TrainedPolicy

__all__ = ["NAME", "ModelPolicy", "TrainedPolicy"]
