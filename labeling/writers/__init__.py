"""Writers of guidance: an embedded template, and a chat model; each is imported when it is used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import ModelWriter
    from .template import TemplateWriter

__all__ = ["ModelWriter", "TemplateWriter"]


def __getattr__(name: str) -> Any:
    from ...core.lazy import imported  # noqa: PLC0415 - only needed here

    return imported(__name__, name)
