"""Reading of a folder of episodes without a state (:mod:`.stateless`): its counts, and the proof of its labels.

Labels from distances are derived again twice: by the code that made them, and here with fractions and without division.
Those of an Analyzer are estimates; nothing proves them, and they count as unproved.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .. import plugins
from ..datasets.proof.report import Report
from ..environments.base import PivotEnv
from ..errors import ImageError, PivotError, StoreError
from ..images import decode, frame_id
from .base import EPISODES, LABELS, UNLABELLED, Place, UnreadableError, explained, line_places, read_below, read_line
from .distances import MILLIMETRE, SLACK, label_by_distance
from .episode import RecordedEpisode
from .levels import LeftOutError, slots_of
from .stateless import ESTIMATED, FRAMES

Row = dict[str, Any]
Table = tuple[str, list[str], list[list[Any]]]
"""Title, names of columns, rows."""

_PICTURE = re.compile(rf"{FRAMES}/([0-9a-f]{{64}})\.png")
_NUMBER = re.compile(r"\d+(\.\d+)?")


def is_folder(root: object) -> bool:
    """Return whether a path is a folder of episodes without a state."""
    with contextlib.suppress(PermissionError):  # the readers of stores name it
        return isinstance(root, Path) and all((root / name).is_file() for name in (EPISODES, LABELS, UNLABELLED))
    return False


def places_of(root: Path) -> Iterator[Place]:
    """Yield the places of the episodes of a folder, in order."""
    return line_places(root, root / EPISODES, EPISODES)


def read_episode(root: Path, place: Place) -> RecordedEpisode:
    """Read an episode of a folder.

    Raises:
        UnreadableError: the line is not one.
    """
    try:
        return RecordedEpisode.model_validate_json(read_line(root, place))
    except ValidationError as error:
        raise explained(error) from error


def rows_of(root: Path, name: str) -> dict[int, Row]:
    """Return the rows of labels, or of reasons for none, by the line of their episode.

    Raises:
        StoreError: a line is not such a row, or two are about one episode.
    """
    rows: dict[int, Row] = {}
    for place in line_places(root, root / name, name):
        try:
            row = json.loads(read_line(root, place))
            line = row["line"]
        except (UnreadableError, ValueError, RecursionError, KeyError, TypeError) as error:
            raise StoreError(f"{root}: {place.label} is not a row about an episode ({error}); import again") from error
        if not isinstance(line, int) or line in rows:
            raise StoreError(f"{root}: {place.label} has the line {line!r} of another row; import again")
        rows[line] = row
    return rows


def outcome(episode: RecordedEpisode) -> str:
    """Return in one word how an episode ended."""
    return {True: "solved", False: "failed", None: "open"}[episode.success]


def folder_tables(root: Path) -> list[Table]:
    """Return the counts of a folder as tables.

    Raises:
        StoreError: a file is torn.
    """
    labels, reasons = rows_of(root, LABELS), rows_of(root, UNLABELLED)
    episodes: Counter[tuple[str, str, str]] = Counter()
    for line, place in enumerate(places_of(root), 1):
        try:
            episode = read_episode(root, place)
        except UnreadableError as error:
            raise StoreError(f"{root}: {place.label}: {error}; import again") from error
        episodes[episode.env, outcome(episode), str(labels.get(line, {}).get("kind", "none"))] += 1
    modes = Counter((str(row["env"]), str(row["kind"]), str(row["failure_mode"])) for row in labels.values())
    steps = Counter((str(row["env"]), str(row["kind"]), int(row["pivot_step"])) for row in labels.values())
    made = {**reasons, **{line: row for line, row in labels.items() if "no_state" in row}}
    no_state = Counter(str(row.get("no_state")) for row in made.values())
    open_reasons = [_NUMBER.sub("N", str(row.get("reason"))) for line, row in reasons.items() if line not in labels]
    return [
        _table("Episodes without a state", ["env", "outcome", "label", "episodes"], episodes),
        _table("Failure modes", ["env", "label", "failure_mode", "failures"], modes),
        _table("Pivot step", ["env", "label", "pivot_step", "failures"], steps),
        _table("Reasons for the missing state", ["reason", "episodes"], no_state),
        _table("Reasons for the missing label", ["reason", "episodes"], Counter(open_reasons)),
    ]


def _table(title: str, names: list[str], counts: Mapping[Any, int]) -> Table:
    keyed = {key if isinstance(key, tuple) else (key,): count for key, count in counts.items()}
    return title, names, [[*key, count] for key, count in sorted(keyed.items())]


def verify_folder(root: Path) -> Report:
    """Prove the labels of a folder again, and check its episodes and pictures.

    Raises:
        StoreError: labels cannot be read at all.
    """
    report = Report()
    labels, reasons = rows_of(root, LABELS), rows_of(root, UNLABELLED)
    named: set[str] = set()
    line = 0
    for line, place in enumerate(places_of(root), 1):
        try:
            episode = read_episode(root, place)
            expected = label_by_distance(episode, _slots(episode))
        except (UnreadableError, LeftOutError, PivotError) as error:
            report.problems.append(f"{place.label}: {error}")
            continue
        named.update(name for name in (*(turn.frame for turn in episode.turns), episode.final_frame) if name)
        problems = _problems(episode, expected, labels.get(line), reasons.get(line))
        report.problems += [f"{place.label}: {each}" for each in problems]
        report.unproved += labels.get(line, {}).get("kind") == ESTIMATED
    strays = sorted({*labels, *reasons} - set(range(1, line + 1)))
    report.problems += [f"a label is about line {each}, the folder has {line} episodes" for each in strays]
    report.problems += _picture_problems(root, named)
    report.count({"episodes": line, "labels": len(labels), "pictures": len(named)})
    report.notes.append("no state, reward or end of these episodes was replayed; their labels prove bounds alone")
    return report


def _slots(episode: RecordedEpisode) -> list[Any]:
    kind: type[PivotEnv] = plugins.load("environments", episode.env)
    env = kind.from_settings(dict(episode.env_config))
    try:
        return slots_of(env, episode)
    finally:
        env.close()


def _problems(episode: RecordedEpisode, expected: Row | str, label: Row | None, reason: Row | None) -> Iterator[str]:
    """Yield what is wrong with the label of an episode, or with the reason for none."""
    for row in (label, reason):
        if row is not None and (row.get("id"), row.get("env")) != (episode.id, episode.env):
            yield f"its row names {row.get('id')!r} of {row.get('env')!r}"
    if isinstance(expected, str):
        if reason is None or reason.get("reason") != expected:
            yield f"the reason for no label is {None if reason is None else reason.get('reason')!r}, found {expected!r}"
        if label is not None:
            yield from _estimate_problems(episode, label)
        return
    if label is None or reason is not None:
        yield "its distances give a label, which it lacks" if label is None else "it has both a label and a reason"
        return
    plain = json.loads(json.dumps(expected))
    yield from (f"{name} is {label.get(name)!r}, found {plain[name]!r}" for name in plain if plain[name] != label[name])
    yield from _bound_problems(episode, label)


def _estimate_problems(episode: RecordedEpisode, label: Row) -> Iterator[str]:
    step, chance = label.get("pivot_step"), label.get("probability")
    modes = plugins.load("environments", episode.env).profile.failure_modes
    if label.get("kind") != ESTIMATED or episode.success is not False:
        yield f"found a label of kind {label.get('kind')!r} that nothing gives"
    if not isinstance(step, int) or not 0 <= step < len(episode.turns) or label.get("failure_mode") not in modes:
        yield f"the estimate {step!r}, {label.get('failure_mode')!r} is not a turn and a mode of {episode.env}"
    if chance is not None and not (isinstance(chance, int | float) and 0 <= chance <= 1):
        yield f"the probability is {chance!r}, expected a number from 0 to 1"


def _bound_problems(episode: RecordedEpisode, label: Row) -> Iterator[str]:
    """Yield what the second derivation of a bound finds: the goal is lost where the way is longer than the reach."""
    settings, metres = label["by"]["settings"], [Fraction(each) for each in episode.distances or ()]
    if settings["pivot_rule"] != "budget":
        return
    step, near = Fraction(settings["step"]), Fraction(settings["threshold"])
    horizon = int(episode.env_config.get("horizon", len(episode.turns)))
    left: Sequence[int] = episode.left or [horizon - t for t in range(len(metres))]
    slack = Fraction(SLACK if episode.left else SLACK / 10)
    lost = [way - near > step * (most + slack) for way, most in zip(metres, left, strict=True)]
    first = next((t for t in range(len(metres) - 1) if lost[t + 1] or lost[0]), len(metres) - 2)
    if label["pivot_step"] != first:
        yield f"pivot_step is {label['pivot_step']}, the second derivation gives {first}"
    facts = label["certificate"]
    for name, moment in (("before", first), ("after", first + 1)):
        way, needed = max(metres[moment] - near, Fraction(0)), facts[name]
        if not (needed == 0 and way <= slack) and not step * (needed - 1 + slack) < way <= step * (needed + slack):
            yield f"certificate.{name} is {needed!r}, which does not fit {float(way):g} m to go"
        if facts[f"budget_{name}"] != left[moment]:
            yield f"certificate.budget_{name} is {facts[f'budget_{name}']!r}, found {left[moment]}"
    if any(each <= near for each in metres):
        yield "it came within the success distance, so that it did not fail"
    most = max((len(turn.actions or ()) for turn in episode.turns), default=1)
    if any(abs(a - b) > step * max(most, 1) + Fraction(MILLIMETRE) for a, b in pairwise(metres)):
        yield "its distances change faster than movements of this step"


def _picture_problems(root: Path, named: set[str]) -> Iterator[str]:
    for name in sorted(named):
        match = _PICTURE.fullmatch(name)
        try:
            if match is None or frame_id(decode(read_below(root, name))) != match[1]:
                yield f"the picture {name[:90]!r} is not named by its pixels"
        except (UnreadableError, ImageError) as error:
            yield f"the picture {name[:90]!r}: {error}"
    folder = root / FRAMES
    there = {f"{FRAMES}/{each.name}" for each in folder.iterdir()} if folder.is_dir() else set[str]()
    yield from (f"no episode names the file {name[:90]!r}" for name in sorted(there - named))
