"""Policies that act through a chat model, and the name of models in training; each is imported when it is used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .imported import ImportedPolicy
    from .model import ModelPolicy
    from .trained import NAME, TrainedPolicy

__all__ = ["NAME", "ImportedPolicy", "ModelPolicy", "TrainedPolicy"]


def __getattr__(name: str) -> Any:
    from ...core.lazy import imported  # noqa: PLC0415 - only needed here

    return imported(__name__, name)
