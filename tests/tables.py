"""Tables of cases in JSON files. A text may hold ``«s×n»``, which stands for n times s."""

import json
import re
from pathlib import Path
from typing import Any


def load_table(module: str, name: str) -> Any:
    """Return the contents of a file beside a module, whose ``__file__`` is given."""
    return expanded(json.loads(Path(module).with_name(name).read_text(encoding="utf-8")))


def expanded(value: Any) -> Any:
    """Return JSON data with all texts written out."""
    match value:
        case str():
            return re.sub("«(.*?)×(\\d+)»", lambda match: match[1] * int(match[2]), value, flags=re.DOTALL)
        case list():
            return [expanded(each) for each in value]
        case dict():
            return {key: expanded(each) for key, each in value.items()}
        case _:
            return value
