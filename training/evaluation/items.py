"""The records of the benchmark and their files: questions, truths, worked examples, pictures, one fingerprint.

A benchmark is a folder. Its public part says nothing about levels or seeds: ``items.jsonl`` holds every question,
``shots.jsonl`` worked examples of other levels, ``pictures/`` the pictures. The folder ``private/`` stays with the
maintainer: the truths, the secret of 128 bits behind ids and levels, and the stores. The fingerprint covers both parts
and the pixels of all pictures, so that figures of two machines compare if and only if it is equal.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core import plugins
from ...core.errors import TrainingError
from ...core.identity import digest
from ...core.images import decode
from ...core.storage import Storage, open_storage

VERSION = "4"
"""Version of the benchmark, raised with every change of questions, prompts, selection, parsing or figures."""

CANARY = "pivot-benchmark canary 5d0f1d8e-6a77-4c39-9b5e-2f3d7c1a9e64"
"""Text in every line of the files: trainers on crawled text can filter them, and test for them."""

Question = Literal["twin", "locate", "safe", "credit"]
QUESTIONS: tuple[Question, ...] = ("twin", "locate", "safe", "credit")
"""Questions; ``twin`` has the wording of ``locate``."""
LOGS = ("full", "actions")
"""Content of the log per step: every field of the environment, or the action alone."""

EXAMPLES = 8
"""Worked examples per environment, question and log, of different levels."""

FORM = {"images": "collage", "max_pictures": None, "thoughts": False}
"""Format in which items show their episodes: one collage, without the agent's words. The fingerprint covers it."""

SUMMARY, BASELINES, PICTURES = "benchmark.json", "baselines.json", "pictures"
ITEMS, SHOTS, PRIVATE = "items.jsonl", "shots.jsonl", "private"
ANSWERS, SECRET = f"{PRIVATE}/answers.jsonl", f"{PRIVATE}/secret.json"


def plugin_of(env: str) -> str:
    """Return the plugin of an environment of the benchmark: ``gym`` of ``gym:Taxi-v4``, else its name."""
    return env.partition(":")[0]


def canonical_level(row: Mapping[str, Any]) -> str:
    """Return environment and canonical level of a row with an initial state."""
    return f"{row['env']} {plugins.load('environments', row['env']).canonical_state(row['initial_state'])}"


@dataclass(frozen=True, slots=True)
class Item:
    """One question about one episode; it holds nothing of the truth."""

    item_id: str
    """Hash of the secret and the episode; in items of a dataset ``question/log/environment/episode``."""
    question: Question
    env: str
    """Environment; ``gym:ID`` for one of gymnasium."""
    log: str
    """``full`` or ``actions``."""
    horizon: int
    """``T_max``, turns."""
    actions: tuple[str, ...]
    """Normalised names, length T."""
    action_log: str
    """The compact log as the prompt shows it, T lines."""
    step: int | None
    """Step that a question ``safe`` is about; None for other questions."""
    choices: tuple[str, ...]
    """Failure modes of ``locate`` and ``twin``, offered actions of ``safe``; empty for ``credit``."""
    prompt: str
    pictures: tuple[str, ...]
    """Names of the pictures, relative to the folder, in the order of the prompt: the collage."""
    pixels: tuple[str, ...]
    """Digests of their pixels."""

    @property
    def num_steps(self) -> int:
        """Number of steps, ``T``."""
        return len(self.actions)


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth about the episode of one item, proved by the environment's solver."""

    item_id: str
    level: str
    """Canonical level; intervals are over levels, of twins over pairs."""
    pivot_step: int | None
    """The pivot; None for an episode that was never lost."""
    failure_mode: str | None
    """None exactly where the pivot is None."""
    safe_actions: tuple[str, ...] = ()
    """All offered actions of a question ``safe`` after which the goal is within reach."""
    within_reach: tuple[bool, ...] = ()
    """For ``credit``: whether the goal is within reach after each step, length T."""
    need: tuple[int | None, ...] = ()
    """For ``credit``: turns that the goal takes after each step, length T; None where it is beyond the horizon."""
    pair: str = ""
    """For ``twin``: name that the two items of a pair share."""


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example: an item of another level, and the reply that is right."""

    item: Item
    reply: str


Record = TypeVar("Record", Item, Truth)


def pixels_digest(pixels: NDArray[np.uint8]) -> str:
    """Return the digest of a picture's shape and pixels, which does not depend on how they are encoded."""
    return hashlib.sha256(repr(pixels.shape).encode() + np.ascontiguousarray(pixels).tobytes()).hexdigest()[:32]


def public_digest(items: Iterable[Item], examples: Iterable[Example]) -> str:
    """Return the digest of questions, prompts, pictures and worked examples, in any order."""
    rows: list[list[Any]] = [["variant", FORM]]
    rows += [["item", asdict(each)] for each in items]
    rows += [["example", asdict(each.item), each.reply] for each in examples]
    return digest(sorted(json.dumps(row, sort_keys=True) for row in rows), length=16)


def fingerprint(public: str, truths: Iterable[Truth], secret: str) -> str:
    """Return the digest of everything; without the secret, nobody can check a guess of the truths against it."""
    return digest([public, secret, sorted(json.dumps(asdict(each), sort_keys=True) for each in truths)], length=16)


@dataclass(frozen=True)
class Benchmark:
    """An open benchmark folder."""

    root: Path
    facts: Mapping[str, Any]
    """Content of ``benchmark.json``: version, fingerprint, counts and versions."""
    items: Mapping[str, Item]
    truths: Mapping[str, Truth]
    """Empty where the private part is missing; such a benchmark can be answered, and not scored."""
    examples: Sequence[Example]

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides a figure."""
        return self.facts["fingerprint"]

    @property
    def environments(self) -> list[str]:
        """Names of the environments, sorted."""
        return sorted({each.env for each in self.items.values()})

    @cached_property
    def storage(self) -> Storage:
        """Files of the folder."""
        return open_storage(self.root)

    def pictures(self, item: Item) -> tuple[bytes, ...]:
        """Return the encoded pictures of an item, in the order of its prompt.

        Raises:
            TrainingError: their pixels are not those of the benchmark.
        """
        return tuple(self._picture(name, pixels) for name, pixels in zip(item.pictures, item.pixels, strict=True))

    def _picture(self, name: str, pixels: str) -> bytes:
        data = self.storage.read_bytes(name)
        if pixels_digest(decode(data)) != pixels:
            raise TrainingError(
                f"{self.storage.address(name)} shows other pixels than the benchmark's; remove {self.root} and make it "
                "again"
            )
        return data

    def baselines(self) -> list[dict[str, Any]]:
        """Return the results of the baselines that read the log alone; empty if none were measured."""
        return self.storage.read_json(BASELINES) if self.storage.stat(BASELINES) is not None else []


def write_benchmark(
    root: Path,
    facts: Mapping[str, Any],
    items: Sequence[Item],
    truths: Sequence[Truth],
    examples: Sequence[Example],
    measure: Callable[[Benchmark], Sequence[Mapping[str, Any]]],
    secret: str = "",
) -> Benchmark:
    """Write the files of a benchmark, ``benchmark.json`` last, and return it; pictures are there already.

    Args:
        root: folder of the benchmark.
        facts: content of ``benchmark.json`` apart from digests and canary.
        items: the questions.
        truths: their truths, in the same order.
        examples: worked examples of other levels.
        measure: returns the results of the baselines.
        secret: the secret in ``private/secret.json``; empty for items of a dataset.

    Raises:
        StoreError: the folder cannot be written.
    """
    storage = open_storage(root)
    storage.write_bytes(ITEMS, _lines(asdict(each) for each in items))
    storage.write_bytes(ANSWERS, _lines(asdict(each) for each in truths))
    storage.write_bytes(SHOTS, _lines({"item": asdict(each.item), "reply": each.reply} for each in examples))
    public = public_digest(items, examples)
    record = {**facts, "canary": CANARY, "public": public, "fingerprint": fingerprint(public, truths, secret)}
    benchmark = _benchmark(root, record, items, truths, examples)
    storage.write_json(BASELINES, measure(benchmark))
    storage.write_json(SUMMARY, record)
    return benchmark


def _benchmark(
    root: Path, facts: Mapping[str, Any], items: Sequence[Item], truths: Sequence[Truth], examples: Sequence[Example]
) -> Benchmark:
    named = {each.item_id: each for each in items}, {each.item_id: each for each in truths}
    return Benchmark(root, facts, *named, tuple(examples))


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps({**row, "canary": CANARY}, ensure_ascii=False) + "\n" for row in rows).encode()


def is_benchmark(root: Path) -> bool:
    """Whether a folder holds a complete benchmark."""
    return open_storage(root).stat(SUMMARY) is not None


def open_benchmark(root: Path) -> Benchmark:
    """Open a benchmark and check its digests; the private part may be missing.

    Raises:
        TrainingError: the folder holds no complete benchmark, one of another version, or its files were changed.
    """
    storage = open_storage(root)
    if storage.stat(SUMMARY) is None:
        raise TrainingError(f"{root} holds no {SUMMARY}; make a benchmark there with: pivot benchmark make {root}")
    facts = storage.read_json(SUMMARY)
    version = facts.get("version") if isinstance(facts, dict) else None
    if version != VERSION:
        raise TrainingError(
            f"{storage.address(SUMMARY)}: found version {version!r} of the benchmark, expected {VERSION}; figures of "
            "different versions do not compare: use the PIVOT that made it, or make it again"
        )
    items = [_record(Item, row, where) for row, where in _rows(storage, ITEMS)]
    examples = [Example(_record(Item, row["item"], where), row["reply"]) for row, where in _rows(storage, SHOTS)]
    public, truths = public_digest(items, examples), list[Truth]()
    name, actual = "public", public
    if public == facts.get("public") and storage.stat(ANSWERS) is not None:
        truths = [_record(Truth, row, where) for row, where in _rows(storage, ANSWERS)]
        name, actual = "fingerprint", fingerprint(public, truths, read_secret(storage))
    if actual != facts.get(name):
        raise TrainingError(
            f"{root} was changed: found the {name} {actual}, expected {facts.get(name)}; remove the folder and make it "
            "again"
        )
    return _benchmark(root, facts, items, truths, examples)


def read_secret(storage: Storage) -> str:
    """Return the secret of a benchmark; empty where the folder has none, as for items of a dataset."""
    record = storage.read_json(SECRET) if storage.stat(SECRET) is not None else {"secret": ""}
    secret = record.get("secret") if isinstance(record, dict) else None
    if not isinstance(secret, str):
        raise TrainingError(f"{storage.address(SECRET)}: found no secret, expected a text; restore the file")
    return secret


def _rows(storage: Storage, name: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the rows of a JSONL file, each with its line for messages."""
    for number, line in enumerate(storage.read_bytes(name).splitlines(), 1):
        where = f"{storage.address(name)}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise TrainingError(f"{where}: not JSON ({error}); make the benchmark again") from error
        yield row, where


def _record(kind: type[Record], row: Mapping[str, Any], where: str) -> Record:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    values.pop("canary", None)
    if values.keys() != {each.name for each in fields(kind)}:
        raise TrainingError(f"{where}: found other fields than those of {kind.__name__}; make the benchmark again")
    return kind(**values)
