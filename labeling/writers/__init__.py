"""Who writes the guidance of a label: an embedded template, or a chat model."""

from .model import ModelWriter
from .template import TemplateWriter

__all__ = ["ModelWriter", "TemplateWriter"]
