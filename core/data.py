"""Data files of the package: texts, drawings and tables, read once per process."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def load_data(module: str, name: str) -> Any:
    """Return the contents of a YAML file beside a module, whose ``__file__`` is given; do not change them."""
    text = Path(module).with_name(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
