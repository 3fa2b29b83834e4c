"""Drawings as data: expressions in the data files of targets and rooms."""

import ast
import operator
from collections.abc import Mapping
from functools import cache
from typing import Any

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


@cache
def _parse(text: str) -> Any:
    """Return an expression, or the number that it is."""
    node = ast.parse(text.strip(), mode="eval").body
    return node.value if isinstance(node, ast.Constant) else node


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression of whole numbers, names, ``+ - * //`` and parentheses."""
    if expression in names:
        return names[expression]
    parsed = _parse(expression)
    return parsed if isinstance(parsed, int) else _value(parsed, names)


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
