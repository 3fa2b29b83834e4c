"""Drawings as data: expressions in the data files of targets and rooms."""

import ast
import operator
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


@cache
def load_drawings(path: Path) -> Any:
    """Return the contents of a data file of the package; do not change them."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def _parse(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def evaluate(expression: str | int, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression of whole numbers, names, ``+ - * //`` and parentheses."""
    return _value(_parse(expression), names) if isinstance(expression, str) else expression


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, names)
        case ast.BinOp():
            return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
        case _:
            raise ValueError(f"found {ast.unparse(node)!r}, expected numbers, names and + - * //")
