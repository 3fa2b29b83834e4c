"""The number of the format of stores, and the refusal of stores of another format."""

from typing import Any

from ...core.errors import StoreError

FORMAT = 1
"""Raised when stored rows get another meaning, or equal inputs other bytes; part of receipts, and of ``run.json``."""


def refuse_other_format(run: dict[str, Any], address: str) -> None:
    """Refuse a store of another format, whose rows may mean something else; ``address`` is that of its ``run.json``.

    Raises:
        StoreError: its ``run.json`` names another number, or none.
    """
    if (number := run.get("format")) != FORMAT:
        raise StoreError(
            f"{address}: found format {number!r}, expected {FORMAT}; read the store with the version of "
            "PIVOT that wrote it, or build it again with --refresh"
        )
