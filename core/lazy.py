"""Names of a module that are imported at their first use, and suggestions for misspelt names.

The module imports them under ``if TYPE_CHECKING:``, for type checkers; here the same lines say where each name is.
"""

import ast
import difflib
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def near_match(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean 'workers'?`` if a name is close to one of ``names``, else an empty text."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


@cache
def _homes(module: str) -> dict[str, tuple[str, str]]:
    """Return the module of each name that ``module`` imports for type checkers, and its name there."""
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8"))
    blocks = (each.body for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING")
    imports = (each for block in blocks for each in block if isinstance(each, ast.ImportFrom) and each.level == 1)
    return {name.asname or name.name: (f".{each.module}", name.name) for each in imports for name in each.names}


def imported(module: str, name: str) -> Any:
    """Import a name of a module.

    Raises:
        AttributeError: the module has no such name.
    """
    homes = _homes(module)
    if name not in homes:
        raise AttributeError(f"module {module!r} has no attribute {name!r}{near_match(name, homes)}")
    home, its_name = homes[name]
    return getattr(import_module(home, sys.modules[module].__package__), its_name)
