"""Format numbers of the bytes that this version writes, and the refusal of stores with other formats."""

from collections.abc import Mapping
from typing import Any

from ..errors import StoreError

STORE_FORMAT = 5
"""Raised when the bytes of a rollout table change for equal inputs; part of receipts, and of ``run.json``."""
LABEL_FORMAT = 5
"""Raised when the bytes of labels change for equal rollouts; part of receipts, and of ``run.json``."""
EXPORT_FORMAT = 5
"""Raised when the bytes of the dataset change for equal rollouts and labels; part of receipts."""
FORMATS_SINCE = "0.1.0"
"""Release that introduced label format 5 and export format 5; its receipts carry it, so these formats keep it."""

LATER_FIELDS: frozenset[str] = frozenset({"filters", "guidance"})
"""Fields of the config in ``run.json`` that came after these formats: a store of an earlier release lacks them."""


def formats() -> dict[str, int]:
    """Return the formats as ``run.json`` has them."""
    return {"store": STORE_FORMAT, "labels": LABEL_FORMAT}


def refuse_other_formats(run: Mapping[str, Any], root: object, *names: str, whole: bool = True) -> None:
    """Refuse to resume a store of other formats: new rows would differ from the stored ones.

    Args:
        run: its ``run.json``; one from before there was the field is read as today's.
        root: where it is.
        names: formats to compare; all by default.
        whole: whether it is finished; this version cannot resume an unfinished store of another.

    Raises:
        StoreError: one differs; the message names the command that migrates the store.
    """
    refuse_newer(run, root)
    stored, here = run.get("formats", formats()), formats()
    for name in names or here:
        if stored.get(name) != here[name]:
            difference = f"{root} has {name} format {stored.get(name)}, this version writes {here[name]}"
            unfinished = "it is unfinished: finish it with the version that began it, or build it again with --refresh"
            raise StoreError(f"{difference}; {migrate_hint(root) if whole else unfinished}")


def refuse_newer(run: Any, root: object) -> None:
    """Refuse a store that a newer version wrote, because this version does not know the meaning of its rows.

    Raises:
        StoreError: its ``run.json`` names a newer format.
    """
    stored = run.get("formats") if isinstance(run, Mapping) else None
    for name, here in formats().items():
        number = stored.get(name) if isinstance(stored, Mapping) else None
        if isinstance(number, int) and number > here:
            raise StoreError(
                f"{root} has {name} format {number}, this version knows none above {here}: a newer PIVOT wrote it; "
                "install that one"
            )


def migrate_hint(root: object) -> str:
    """Return half a sentence with the command that migrates a store."""
    return f"bring it to this version with: pivot migrate {root} --out NEW"
