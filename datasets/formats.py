"""The number of the format of stores, and the refusal of stores of another format."""

from typing import Any

from ..errors import StoreError

FORMAT = 1
"""Raised when stored rows get another meaning, or equal inputs other bytes; part of receipts, and of ``run.json``."""


def refuse_other_format(run: Any, root: object) -> None:
    """Refuse a store of another format, whose rows may mean something else.

    Raises:
        StoreError: its ``run.json`` names another number, or none.
    """
    found = run.get("format") if isinstance(run, dict) else None
    if found != FORMAT:
        raise StoreError(
            f"{root} has format {found!r}, expected {FORMAT}; read it with the version of PIVOT that wrote it, or "
            "build it again with --refresh"
        )
