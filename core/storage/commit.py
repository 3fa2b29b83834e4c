"""Replace a folder and some objects, and remove others, in one step that survives a kill at any moment.

The new versions are prepared under other names; then a journal is written. Once it exists, the next writer that opens
the storage finishes the step first, so the result is the old version or the new one, never a mixture.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from ..errors import StoreError, printable
from .base import Storage

COMMIT = ".commit"
"""Folder in which the objects of a step are prepared, under their final names."""

JOURNAL = f"{COMMIT}/journal.json"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Step:
    """Content of a journal: the moves and removals of a step."""

    source: str
    """The prepared folder."""
    target: str
    """The folder that it replaces."""
    mark: str
    """Identity of the prepared folder, also after it was moved (:meth:`Storage.folder_id`)."""
    objects: tuple[str, ...]
    """Objects prepared under ``COMMIT``, in the order in which they are moved."""
    obsolete: tuple[str, ...]
    """Objects and folders to remove afterwards."""


_STEP = TypeAdapter(Step)

Objection = Callable[[Step], str | None]
"""Describes a name in a step that the writer of journals never writes; None if there is none."""


def bind(storage: Storage, folder: tuple[str, str], objects: Sequence[str], obsolete: Sequence[str]) -> None:
    """Write the journal: from now on this writer or the next one finishes the step.

    Args:
        storage: the storage.
        folder: the prepared folder, and the one whose place it takes.
        objects: prepared under ``COMMIT``, in the order in which they are moved.
        obsolete: objects and folders to remove afterwards.
    """
    step = Step(*folder, storage.folder_id(folder[0]), tuple(objects), tuple(obsolete))
    storage.write_json(JOURNAL, asdict(step))


def roll_forward(storage: Storage, objection: Objection) -> bool:
    """Finish a step that was bound but not completed; return whether there was one. Only the lock's holder calls it.

    Raises:
        StoreError: the journal was not written by this package, or the step cannot be finished.
    """
    if storage.stat(JOURNAL) is None:
        storage.delete(COMMIT)
        return False
    step = _read_journal(storage, objection)
    storage.replace_folder(step.source, step.target, step.mark)
    for name in step.objects:
        storage.replace(f"{COMMIT}/{name}", name)
    storage.flush(step.objects)
    for name in step.obsolete:
        storage.delete(name)
    storage.delete(COMMIT)
    return True


def refuse_interrupted(storage: Storage, command: str) -> None:
    """Refuse a storage with an unfinished step; for readers that compare all objects with each other.

    Other readers need not: what they open is the old version or the new one at any moment.

    Raises:
        StoreError: a step is unfinished; the message names ``command``, which finishes it.
    """
    if storage.stat(JOURNAL) is not None:
        raise StoreError(
            f"{storage.address()} is between two versions ({JOURNAL}): the command that was replacing one by the other "
            f"was interrupted, or still runs; expected a finished store: finish it with: {command}"
        )


def _read_journal(storage: Storage, objection: Objection) -> Step:
    """Read the journal and check every field: an untrusted one must change nothing that a step would not."""
    try:
        step = _STEP.validate_python(storage.read_json(JOURNAL))
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"found {'.'.join(map(str, first['loc'])) or 'it'} of another form ({first['msg']})"
    else:
        problem = next(filter(None, map(_name_problem, _names(step))), None) or objection(step)
        if problem is None:
            return step
    raise StoreError(
        f"{storage.address(JOURNAL)} was not written by this program: {problem}; nothing was changed: remove that file "
        "if the rest of the store is yours, else the store"
    )


def _names(step: Step) -> list[str]:
    """Return every name in a step; a mark is a number, or the names of what is in the prepared folder."""
    return [step.source, step.target, *step.objects, *step.obsolete, *filter(None, step.mark.split("\n"))]


def _name_problem(name: str) -> str | None:
    """Return why a name is not a valid name below the root, or None."""
    if name.isprintable() and not {"", ".", ".."}.intersection(name.split("/")):
        return None
    return f"it names {printable(repr(name))}, which is not a name below the store"
