"""Prompts and targets in the words for failure modes that a run is taught, whatever words the dataset was made in."""

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
    env: str, prompt: Sequence[Mapping[str, Any]], vocabulary: Vocabulary, place: str
) -> tuple[dict[str, Any], ...]:
    """Return the messages of a prompt with the failure modes of ``vocabulary`` (spec section 3).

    Args:
        env: environment of the record.
        prompt: chat messages whose parts have the keys ``type`` and ``text``.
        vocabulary: whose words.
        place: file and row, for messages.

    Raises:
        TrainingError: the prompt does not list them as this version does.
    """
    profile = environment(env).profile
    other: Vocabulary = "certificate" if vocabulary == "paper" else "paper"
    old, new = mode_lines(profile, other), mode_lines(profile, vocabulary)

    def said(text: str) -> str:
        if old == new or all(lines in text for lines in new):
            return text
        if any(text.count(lines) != 1 for lines in old):
            raise TrainingError(
                f"{place}: its prompt does not list failure modes as this version does, so they cannot be put "
                f"into the words of {vocabulary!r}; leave --target-vocabulary away, or run: pivot relabel STORE "
                f"--target-vocabulary {vocabulary}"
            )
        return text.replace(old[0], new[0]).replace(old[1], new[1])

    def reworded(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "text": said(part["text"])} if part["text"] else {**part}

    return tuple({**message, "content": [reworded(part) for part in message["content"]]} for message in prompt)


def target_in_words(env: str, target: str, failure_mode: str, vocabulary: Vocabulary) -> str:
    """Return a target that names ``failure_mode``, the certificate's, in the words of ``vocabulary``."""
    read, word = parse_target(target), target_mode(env, failure_mode, vocabulary)
    return target if read.failure_mode == word else build_target(read.pivot_step, word, read.failure_reason)


def words_taught(model: str) -> Vocabulary | None:
    """Return the words that its run taught a checkpoint, ``RUN/final`` or ``RUN/best``; None where no run says so.

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
        raise TrainingError(f"{run / on_disk.RUN} cannot be read ({error}); say --target-vocabulary") from error
