"""Extension of Griffe: fields declared as ``Annotated[type, Stored("meaning")]`` show the type and the meaning."""

import ast
from typing import Any

import griffe


class StoredFields(griffe.Extension):
    """Moves the meaning of a stored field from its annotation to its docstring."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Rewrite the annotation of one attribute."""
        annotation = attr.annotation
        if not isinstance(annotation, griffe.ExprSubscript) or str(annotation.left) != "Annotated":
            return
        if isinstance(annotation.slice, griffe.ExprTuple):
            kind, *marks = annotation.slice.elements
            attr.annotation = kind
            for mark in marks:
                if attr.docstring is None and isinstance(mark, griffe.ExprCall) and str(mark.function) == "Stored":
                    attr.docstring = griffe.Docstring(ast.literal_eval(str(mark.arguments[0])), parent=attr)
