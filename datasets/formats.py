"""Which bytes this version writes for equal inputs, and what to do with a store that holds others."""

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

LATER_FIELDS: frozenset[str] = frozenset({"filters"})
"""Fields of the config in ``run.json`` that came after these formats: a store of an earlier release lacks them."""


def formats() -> dict[str, int]:
    """What ``run.json`` says of the formats."""
    return {"store": STORE_FORMAT, "labels": LABEL_FORMAT}


def refuse_other_formats(run: Mapping[str, Any], root: object, *names: str, whole: bool = True) -> None:
    """Refuse to go on with a store of other formats: what this version adds to it would not be like the rest.

    Args:
        run: its ``run.json``; one from before there was the field is read as today's.
        root: where it is.
        names: which formats matter; all by default.
        whole: whether it is finished; another version cannot go on with one that is not.

    Raises:
        StoreError: one is another; the message names the command that makes a store of this version of it.
    """
    refuse_newer(run, root)
    stored, here = run.get("formats", formats()), formats()
    for name in names or here:
        if stored.get(name) != here[name]:
            held = f"{root} has {name} format {stored.get(name)}, this version writes {here[name]}"
            unfinished = "it is not finished: do that with the version that began it, or make it anew with --refresh"
            raise StoreError(f"{held}; {migrate_hint(root) if whole else unfinished}")


def refuse_newer(run: Any, root: object) -> None:
    """Refuse a store whose ``run.json`` says a newer version wrote it: nobody here knows what its rows mean.

    Raises:
        StoreError: it does.
    """
    stored = run.get("formats") if isinstance(run, Mapping) else None
    for name, here in formats().items():
        held = stored.get(name) if isinstance(stored, Mapping) else None
        if isinstance(held, int) and held > here:
            raise StoreError(
                f"{root} has {name} format {held}, this version knows none above {here}: a newer PIVOT wrote it; "
                "install that one"
            )


def migrate_hint(root: object) -> str:
    """Say how a store of another version becomes one of this version."""
    return f"bring it to this version with: pivot migrate {root} --out NEW"
