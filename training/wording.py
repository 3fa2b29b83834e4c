"""Prompts and targets with the label names of a vocabulary, whatever vocabulary the dataset has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..datasets.config import environment
from ..errors import StoreError, TrainingError
from ..labeling.analyzer import mode_lines
from ..labeling.target import build_target, parse_target
from ..labeling.vocabulary import Vocabulary, target_mode
from ..storage import open_storage
from . import checkpoint as on_disk


def prompt_in_words(
    env: str, prompt: Sequence[Mapping[str, Any]], vocabulary: Vocabulary, where: str
) -> tuple[dict[str, Any], ...]:
    """Return the messages of a prompt with the failure modes of ``vocabulary`` (spec section 3).

    Args:
        env: environment of the record.
        prompt: chat messages whose parts have the keys ``type`` and ``text``.
        vocabulary: vocabulary of the result.
        where: file and row, for messages.

    Raises:
        TrainingError: the prompt does not list the failure modes as this version does.
    """
    profile = environment(env).profile
    other: Vocabulary = "certificate" if vocabulary == "paper" else "paper"
    old, new = mode_lines(profile, other), mode_lines(profile, vocabulary)

    def reworded(text: str) -> str:
        if old == new or all(lines in text for lines in new):
            return text
        if any(text.count(lines) != 1 for lines in old):
            raise TrainingError(
                f"{where}: its prompt does not list failure modes as this version does, so they cannot be renamed to "
                f"{vocabulary!r}; remove --target-vocabulary, or run: pivot relabel STORE --target-vocabulary "
                f"{vocabulary}"
            )
        return text.replace(old[0], new[0]).replace(old[1], new[1])

    def renamed(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "text": reworded(part["text"])} if part["text"] else {**part}

    return tuple({**message, "content": [renamed(part) for part in message["content"]]} for message in prompt)


def target_in_words(env: str, target: str, failure_mode: str, vocabulary: Vocabulary) -> str:
    """Return a target with the name of ``failure_mode``, the certificate's, in ``vocabulary``."""
    fields, name = parse_target(target), target_mode(env, failure_mode, vocabulary)
    return target if fields.failure_mode == name else build_target(fields.pivot_step, name, fields.failure_reason)


def taught_vocabulary(model: str) -> Vocabulary | None:
    """Return the vocabulary that a checkpoint was trained on; None unless it is ``RUN/final`` or ``RUN/best`` of a run.

    Raises:
        TrainingError: the record of the run cannot be read.
    """
    run, name = Path(model).parent, Path(model).name
    if name not in (on_disk.FINAL, on_disk.BEST):
        return None
    storage = open_storage(run)
    if storage.stat(on_disk.RUN) is None:
        return None
    try:
        return storage.read_json(on_disk.RUN)["config"].get("target_vocabulary")
    except (StoreError, KeyError, AttributeError, TypeError) as error:
        raise TrainingError(f"{run / on_disk.RUN} cannot be read ({error}); set --target-vocabulary") from error
