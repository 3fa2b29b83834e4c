"""Episodes without a state: kept in a folder of their own, where labels by distances or by an Analyzer can be added.

``episodes.jsonl`` holds them in PIVOT's own format, ``frames/`` their pictures, ``labels.jsonl`` the labels that can be
given without a state, and ``unlabelled.jsonl`` why the import gave the others none. Such a label is a ``lower_bound``
from recorded distances, or ``estimated`` by an Analyzer with the probability that it gives to its step. No store and no
split ever contains them, so that they cannot be mixed with certified ones.
"""

import filecmp
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .. import plugins
from ..datasets.progress import Reporter
from ..environments.base import PivotEnv
from ..errors import ConfigError, StoreError
from ..images import encode_png, frame_id
from ..labeling.episode import FailedEpisode
from ..training.analyzer import Analyzer, AnalyzerCase, Reading, case_of_episode
from .base import (
    EPISODES,
    LABELS,
    UNLABELLED,
    Pictures,
    Place,
    UnreadableError,
    explained,
    line_places,
    read_below,
    read_line,
)
from .distances import label_by_distance
from .episode import RecordedEpisode
from .levels import Slot, slots_of

FRAMES = "frames"
_FILES = (EPISODES, LABELS, UNLABELLED)
ESTIMATED, ESTIMATE = "estimated", "estimate"


class StatelessFolder:
    """Writer of a folder of episodes without a state; nothing is written before the first one."""

    def __init__(self, root: Path, pictures: Pictures) -> None:
        """Write into ``root``; ``pictures`` decodes the recorded ones."""
        self.root, self._pictures = root, pictures
        self.episodes, self.labelled = 0, 0
        self._files: list[Any] = []
        self._names: dict[str, str] = {}

    def add(self, episode: RecordedEpisode, env: PivotEnv, why: str) -> None:
        """Append an episode, its label if its distances give one, and ``why`` it has no state.

        Raises:
            UnreadableError: a picture cannot be read.
            LeftOutError: an action is not one of the environment.
            StoreError: the folder cannot be written.
        """
        slots = slots_of(env, episode)
        names = {name: self._stored(name) for name in _frames_of(episode)}
        turns = [turn.model_copy(update={"frame": names.get(turn.frame or "")}) for turn in episode.turns]
        last = names.get(episode.final_frame or "")
        label = label_by_distance(episode, slots)
        self._open()
        self.episodes += 1
        self._write(
            0,
            episode.model_copy(update={"turns": turns, "final_frame": last}).model_dump(mode="json", exclude_none=True),
        )
        row = {"line": self.episodes, "id": episode.id, "env": episode.env}
        if isinstance(label, str):
            self._write(2, {**row, "no_state": why, "reason": label})
        else:
            self.labelled += 1
            self._write(1, {**row, "no_state": why, **label})

    def close(self) -> None:
        """Move the finished files to their names. Where the same episodes are there already, their labels stay."""
        halves = [self.root / f".{name}" for name in _FILES]
        for file in self._files:
            file.close()
        if not self._files:
            return
        written = self.root / EPISODES
        if written.is_file() and filecmp.cmp(written, halves[0], shallow=False) and (self.root / LABELS).is_file():
            for half in halves:
                half.unlink()
            return
        for half, name in zip(halves, _FILES, strict=True):
            half.replace(self.root / name)

    def _open(self) -> None:
        if self._files:
            return
        try:
            (self.root / FRAMES).mkdir(parents=True, exist_ok=True)
            self._files = [(self.root / f".{name}").open("wb") for name in _FILES]
        except OSError as error:
            raise StoreError(
                f"cannot write {self.root}: {error.strerror}; name another folder with --stateless"
            ) from error

    def _write(self, file: int, row: Mapping[str, Any]) -> None:
        try:
            self._files[file].write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            raise StoreError(f"cannot write {self.root}: {error.strerror}") from error

    def _stored(self, name: str) -> str:
        """Store a picture under the hash of its pixels, and return its new name."""
        frame = self._pictures.frame(name)
        self._open()
        stored = f"{FRAMES}/{frame_id(frame)}.png"
        target = self.root / stored
        if not target.exists():
            try:
                half = target.with_suffix(".tmp")
                half.write_bytes(encode_png(frame))
                half.replace(target)
            except OSError as error:
                raise StoreError(f"cannot write {target}: {error.strerror}") from error
        return stored


def _frames_of(episode: RecordedEpisode) -> list[str]:
    names = [*(turn.frame for turn in episode.turns), episode.final_frame]
    return list(dict.fromkeys(name for name in names if name is not None))


def _actions(slots: Sequence[Slot], unusable: str) -> list[str]:
    return [unusable if slot.action is None else slot.action.name for slot in slots]


@dataclass(frozen=True, slots=True)
class Estimates:
    """The outcome of :func:`estimate_folder`."""

    estimated: int
    """Failures that the Analyzer labelled now."""
    unreadable: int
    """Failures whose reply could not be read; they have no label."""
    proved: int
    """Failures with a label by distances, which the Analyzer was not asked about."""
    left_out: int
    """Episodes that did not fail, whose end is unknown, or that lack pictures."""


def estimate_folder(root: Path, analyzer: Analyzer, model: str, reporter: Reporter) -> Estimates:
    """Ask an Analyzer about the failures of a folder of episodes without a state, and write its labels.

    Labels of an earlier call are replaced; labels by distances stay, and the Analyzer is not asked about them.

    Args:
        root: folder that an import wrote.
        analyzer: the model in its role.
        model: its name, as the labels say it.
        reporter: receives the progress, in failures.

    Raises:
        ConfigError: the folder holds no such episodes.
        StoreError: a file cannot be read or written.
        ServerGoneError, PluginError: the model cannot be used.
    """
    if not (root / EPISODES).is_file():
        raise ConfigError(f"{root} holds no {EPISODES}; name the folder that pivot import wrote")
    kept = {row["line"]: row for row in _rows(root) if row.get("kind") != ESTIMATED}
    open_cases: list[tuple[int, RecordedEpisode, AnalyzerCase]] = []
    left_out = 0
    for place in line_places(root, root / EPISODES, EPISODES):
        line = int(place.label.rpartition(" ")[2])
        if line in kept:
            continue
        episode = _episode(root, place)
        case = _case_of(root, line, episode)
        if case is None:
            left_out += 1
        else:
            open_cases.append((line, episode, case))
    reporter.start(ESTIMATE, len(open_cases))
    readings = analyzer.read_all((case for _, _, case in open_cases), lambda _: reporter.advance(ESTIMATE, 1))
    reporter.finish(ESTIMATE)
    rows = {
        line: _estimated(line, episode, reading, model)
        for (line, episode, _), reading in zip(open_cases, readings, strict=True)
    }
    made = {line: row for line, row in rows.items() if row is not None}
    half = root / f".{LABELS}"
    try:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for _, row in sorted((kept | made).items()))
        half.write_text(text, encoding="utf-8")
        half.replace(root / LABELS)
    except OSError as error:
        raise StoreError(f"cannot write {root / LABELS}: {error.strerror}") from error
    return Estimates(len(made), len(open_cases) - len(made), len(kept), left_out)


def _rows(root: Path) -> Iterator[dict[str, Any]]:
    """Yield the labels of a folder."""
    if not (root / LABELS).is_file():
        return
    for place in line_places(root, root / LABELS, LABELS):
        try:
            yield json.loads(read_line(root, place))
        except (UnreadableError, ValueError) as error:
            raise StoreError(
                f"{root / LABELS} line {place.label.rpartition(' ')[2]}: {error}; delete the file"
            ) from error


def _episode(root: Path, place: Place) -> RecordedEpisode:
    try:
        return RecordedEpisode.model_validate_json(read_line(root, place))
    except ValidationError as error:
        raise StoreError(f"{root / place.path}: {place.label}: {explained(error)}") from error


def _case_of(root: Path, line: int, episode: RecordedEpisode) -> AnalyzerCase | None:
    """Return the Analyzer's case of a failure; None for an episode that did not fail, or lacks a picture."""
    frames = [turn.frame for turn in episode.turns]
    if episode.success is not False or None in frames:
        return None
    kind: type[PivotEnv] = plugins.load("environments", episode.env)
    env = kind.from_settings(dict(episode.env_config))
    try:
        slots = slots_of(env, episode)
        if len(slots) != len(frames):
            return None  # several steps of one turn share its picture, so that a step cannot be pointed at
        data = {name: read_below(root, name) for name in _frames_of(episode)}
        failed = FailedEpisode(
            episode_id=f"line {line}",
            env=episode.env,
            env_version=kind.profile.version,
            env_config=episode.env_config,
            task_id=episode.task_id or "",
            instruction=episode.instruction or getattr(kind, "instruction", ""),
            initial_state="",
            horizon=env.config.horizon,
            actions=_actions(slots, kind.profile.unusable_action),
            payloads=[None if slot.action is None else slot.action.payload for slot in slots],
            rewards=[turn.reward or 0.0 for turn in episode.turns],
            infos=[turn.info or {} for turn in episode.turns],
            action_valid=[slot.parsed.action_valid for slot in slots],
            frame_ids=[*(name or "" for name in frames), episode.final_frame or frames[-1] or ""],
        )
        return case_of_episode(kind.profile, failed, data)
    finally:
        env.close()


def _estimated(line: int, episode: RecordedEpisode, reading: Reading, model: str) -> dict[str, Any] | None:
    if reading.problem is not None:
        return None
    return {
        "line": line,
        "id": episode.id,
        "env": episode.env,
        "kind": ESTIMATED,
        "pivot_step": reading.pivot_step,
        "failure_mode": reading.failure_mode,
        "probability": reading.step_probability,
        "failure_reason": reading.failure_reason,
        "by": {"analyzer": model},
    }
