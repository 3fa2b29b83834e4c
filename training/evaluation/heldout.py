"""Records of a built dataset for evaluation, one side of the split at a time.

Rows are read with the columns that are asked for: labels and logs of a whole side fit into memory, its pictures need
not. Whatever a row holds is checked before it is used; a message names file and row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TrainingError
from ...labeling.target import BadTargetError, parse_target
from ...labeling.vocabulary import Vocabulary
from ..sources import ALL, DatasetFiles, find_files, rows_of
from ..wording import prompt_in_words, target_in_words

LABEL_COLUMNS = (
    "episode_id",
    "env",
    "env_config",
    "task_id",
    "completion",
    "pivot_step",
    "failure_mode",
    "actions",
    "action_log",
    "initial_state",
    "horizon",
    "num_steps",
    "certificate",
    "witness",
)
"""Everything but what the Analyzer is shown."""
SHOWN_COLUMNS = ("episode_id", "env", "prompt", "images", "num_steps", "completion", "failure_mode")
"""What it is shown, and what bounds its answer."""


@dataclass(frozen=True)
class Records:
    """The records of one config of a dataset."""

    address: str
    """Folder or hub id, for messages."""
    config: str
    files: DatasetFiles
    vocabulary: Vocabulary | None = None
    """Words for failure modes in prompts and targets; None leaves them as they are."""

    def rows(self, side: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a side in a fixed order, with the columns asked for; pictures stay encoded.

        A column ``prompt`` or ``completion`` is asked for together with ``env`` and ``failure_mode``.

        Raises:
            TrainingError: a file is torn, has other columns, or holds a row that is no record, or whose prompt cannot
                be put into the words of the vocabulary.
        """
        for name, _ in self.files.by_side[side]:
            for where, row in rows_of(self.files.storage, name, columns):
                _check(where, row)
                yield row if self.vocabulary is None else _in_words(row, self.vocabulary, where)


def open_records(address: str, config: str = ALL, vocabulary: Vocabulary | None = None) -> Records:
    """Find the records of ``config`` (an environment, or ``all``) in a store, a dataset folder, or on the hub.

    Raises:
        TrainingError: see :func:`~pivot.training.sources.find_files`.
    """
    return Records(address, config, find_files(address, (config,)), vocabulary)


def _in_words(row: dict[str, Any], vocabulary: Vocabulary, where: str) -> dict[str, Any]:
    """Return a row whose prompt and target, if it has them, use the words of a vocabulary."""
    if "prompt" in row:
        row["prompt"] = prompt_in_words(row["env"], row["prompt"], vocabulary, where)
    if "completion" in row:
        (message,) = row["completion"]
        (part,) = message["content"]
        text = target_in_words(row["env"], part["text"], row["failure_mode"], vocabulary)
        row["completion"] = [message | {"content": [part | {"text": text}]}]
    return row


def _check(where: str, row: dict[str, Any]) -> None:
    """Refuse a row that is no record, with its place."""
    steps = row.get("num_steps")
    if "actions" in row and not (steps == len(row["actions"]) == len(row["action_log"].splitlines()) and steps):
        raise TrainingError(f"{where}: num_steps is {steps}, but it has {len(row['actions'])} actions; build it again")
    if "pivot_step" in row and not 0 <= row["pivot_step"] < (steps or 0):
        raise TrainingError(
            f"{where}: pivot_step is {row['pivot_step']}, expected 0 to {(steps or 0) - 1}; remove the row"
        )
    if "completion" in row:
        texts = [part["text"] for message in row["completion"] or () for part in message["content"] or ()]
        try:
            parse_target(*texts)
        except (TypeError, BadTargetError) as error:
            found = f"{len(texts)} texts" if len(texts) != 1 else f"one that cannot be read ({error})"
            raise TrainingError(f"{where}: found {found}, expected one target, JSON; build it again") from None
    if "images" in row:
        pictures = row["images"] or []
        if len(pictures) != 1 or not (pictures[0] or {}).get("bytes"):
            raise TrainingError(f"{where}: it holds {len(pictures)} pictures with content, expected one collage")
