"""Policies that act through a chat model, and the policy name of models in training."""

from .imported import ImportedPolicy
from .model import ModelPolicy
from .trained import NAME, TrainedPolicy

__all__ = ["NAME", "ImportedPolicy", "ModelPolicy", "TrainedPolicy"]
