"""The pages of a shard's episodes as plain data.

A page holds the stored rows, the certificate in words, the requests to models, and two recomputed parts: the need
before and after every step, and pictures of the plan that still worked at the pivot, but not by a
simulator. A part that cannot be recomputed is left out with a reason; a broken episode is shown as it is stored.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

from ...collage import collage, panel
from ...core.errors import CertifyError, LevelError, NotAllowedError, PivotError
from ...core.images import CODECS
from ...core.messages import EncodedFrame
from ...datasets.export.describe import certificate_text, reference_text
from ...datasets.store.config import Shard, environment
from ...datasets.store.dataset_rows import FrameReader, drawn_tiles
from ...datasets.store.parquet import read_table
from ...datasets.store.schema import EPISODES, FRAMES, LABELS, STEPS
from ...datasets.store.store import Store
from ...datasets.store.tables import steps_by_episode, stored_verdict
from ...labeling.action_log import FLOAT_DECIMALS, log_decimals
from ...labeling.episode import EPISODE_COLUMNS, STEP_COLUMNS, FailedEpisode
from ...labeling.replay import DisagreementError, Replays
from ...solvers.base import DistanceMap, ExactSolver
from ..probe.records import PROBE, SETTINGS_FILE, probe_file
from .contents import FORMAT, outcome
from .plain import parsed, plain
from .requests import ShardRequests, Texts

Record = dict[str, Any]


MOST_LEVEL_TEXT = 20_000
"""Characters of a level text that are shown."""

MOST_PROBLEM = 300
"""Characters of a reason why a part is missing."""

_STEP_COLUMNS = [name for name in STEPS.names if name not in ("response_token_ids", "response_logprobs", "snapshot")]
_JSON_OF_EPISODE = ("env_config", "policy_config")
_JSON_OF_STEP = ("info", "payload", "score_parts")
_JSON_OF_LABEL = ("solver_config", "teacher_config", "target")
_OF_RETRY = (
    *("retry_id", "arm", "sample_idx", "restore_step", "hint", "status", "error", "old_return", "new_return", "lift"),
    *("success", "actions", "rewards", "responses"),
)


Draw = Callable[[], bytes | None]


@dataclass(frozen=True, slots=True)
class Page:
    """A page, with its pictures that are not frames of the store by path; a picture is composed when it is read."""

    record: Record
    drawn: dict[str, Draw]


class ShardPages:
    """Makes the pages of one shard; close it when they are made."""

    def __init__(self, store: Store, shard: Shard, number: int) -> None:
        """Read the shard, which has this ``number`` in the plan.

        Raises:
            StoreError: a file is missing, torn, or has other columns.
        """
        self._env, self._number = shard.env, number
        self._episodes = store.read(EPISODES, shard).to_pylist()
        self._steps = steps_by_episode(store.read(STEPS, shard, _STEP_COLUMNS).to_pylist())
        self._labels = {row["episode_id"]: row for row in store.read(LABELS, shard).to_pylist()}
        frames = store.read(FRAMES, shard, ["frame_id", "format", "image"])
        self._images = frames["image"].combine_chunks()
        self._paths: dict[str, str] = {}
        self._formats: dict[str, str] = {}
        names, formats = frames["frame_id"].to_pylist(), frames["format"].to_pylist()
        for index, (name, kind) in enumerate(zip(names, formats, strict=True)):
            if kind in CODECS:
                self._paths[name] = f"frames/{number}/{index}.{CODECS[kind].suffix}"
                self._formats[name] = kind
        self._solver = store.run.envs[shard.env].solver()
        self._replays = Replays()
        self._level: tuple[str, DistanceMap | str] | None = None
        self._requests = ShardRequests(store, shard, self._paths)
        self._retries = _retries_of(store, shard)
        self._frames = FrameReader(frames)

    def close(self) -> None:
        """Close the environments that rendered plans."""
        self._replays.__exit__()

    def picture(self, index: int) -> bytes | None:
        """Return a stored picture by its index among the shard's frames."""
        return self._images[index].as_py() if 0 <= index < len(self._images) else None

    def page(self, row: int) -> Page:
        """Make the page of the episode in a row of the shard."""
        episode = self._episodes[row]
        steps = self._steps.get(episode["episode_id"], [])
        label = self._labels.get(episode["episode_id"])
        failed = _as_failed(episode, steps)
        drawn: dict[str, Draw] = {}
        texts = Texts()
        record: Record = {
            "format": FORMAT,
            "outcome": outcome(episode),
            "episode": _with_json(episode, _JSON_OF_EPISODE),
            "level": self._level_text(episode),
            "tiles": environment(self._env).profile.tiles,
            "frames": [self._frame(each) for each in failed.frame_ids],
            "steps": [_with_json(step, _JSON_OF_STEP) for step in steps],
            "need": self._need(failed),
            "label": None if label is None else self._label(label, failed),
            "witness": self._witness(row, failed, label, drawn),
            "requests": self._requests.student(episode, steps, texts),
            "analyzer": None if label is None else self._analyzer(row, label, steps, texts, drawn),
            "retries": self._retries.get(episode["episode_id"], []),
        }
        return Page(record | {"texts": texts.all()}, drawn)

    def _frame(self, name: str) -> Record:
        return {"id": name, "src": self._paths.get(name)}

    def _level_text(self, episode: Record) -> str:
        text = episode["initial_state"]
        # A level without a description is shown as stored text.
        with contextlib.suppress(PivotError, ValueError, KeyError, TypeError, RecursionError):
            text = environment(self._env).describe_state(text)
        return text if len(text) <= MOST_LEVEL_TEXT else text[:MOST_LEVEL_TEXT] + " …"

    def _label(self, label: Record, episode: FailedEpisode) -> Record:
        certificate = label["certificate"]
        record = _with_json(label, _JSON_OF_LABEL)
        if certificate is None or label["pivot_step"] is None:
            return record | {"certificate_text": None, "reference_text": None}
        decimals = FLOAT_DECIMALS
        if all(isinstance(info, Mapping) for info in episode.infos):
            decimals = log_decimals(self._solver, [episode.case()], [stored_verdict(label)])[0]
        texts = {"certificate_text": certificate_text(certificate, decimals)}
        return record | texts | {"reference_text": reference_text(certificate)}

    # Parts of a page that the solver recomputes

    def _need(self, episode: FailedEpisode) -> Record:
        """Return the need at ``s_0 .. s_T``, or why it is unknown."""
        solver, limit = self._solver, None
        unit: str = solver.unit
        values: Sequence[float | None] | None = None
        problem = None
        if isinstance(solver, ExactSolver):
            limit, most = 2 * max(episode.horizon, 1), episode.case().actions_per_turn
            moves, problem = self._distances(solver, episode, limit * most)
            values = moves and [None if each is None else ceil(each / most) for each in moves]
            unit = unit if most == 1 else "turns"
        elif all(isinstance(info, Mapping) for info in episode.infos):
            values = solver.needs(episode.case())
        record = {"unit": unit, "kind": solver.kind, "limit": limit, "problem": _short(problem)}
        return record | {"values": None if values is None else plain(list(values))}

    def _distances(
        self, solver: ExactSolver, episode: FailedEpisode, limit: int
    ) -> tuple[list[int | None] | None, str | None]:
        if self._level is None or self._level[0] != episode.initial_state:
            try:
                solved: DistanceMap | str = solver.distance_map(episode.initial_state, limit)
            except (LevelError, CertifyError, NotAllowedError) as error:
                solved = str(error)
            self._level = (episode.initial_state, solved)
        distances = self._level[1]
        if isinstance(distances, str):
            return None, distances
        try:
            return [distances.distance(text) for text in self._replays.of(episode).states(episode)], None
        except (DisagreementError, PivotError) as error:
            return None, f"the episode cannot be re-executed: {error}"

    def _witness(self, row: int, episode: FailedEpisode, label: Record | None, drawn: dict[str, Draw]) -> Record | None:
        """Return the plan that still worked at the pivot, with pictures unless a simulator has to draw them."""
        if label is None or label["pivot_step"] is None or not label["witness"]:
            return None
        pivot, plan = label["pivot_step"], label["witness"]
        record: Record = {"actions": plan, "frames": None, "problem": None}
        try:
            replayer = self._replays.of(episode)
            if not isinstance(self._solver, ExactSolver) and not replayer.draws_here:
                return record
            pictures = replayer.pictures_of_plan(episode, pivot, plan)
        except (DisagreementError, PivotError) as error:
            return record | {"problem": _short(f"the plan cannot be drawn: {error}")}
        if pivot >= len(episode.actions) or pictures[0].frame_id != episode.frame_ids[pivot]:
            return record | {"problem": "the plan cannot be drawn: the level now looks different"}
        return record | {"frames": [self._new_frame(f"w{row}", each, drawn) for each in pictures]}

    def _composed(self, kind: str, steps: Sequence[Record], label: Record) -> bytes | None:
        """Return the encoded ``collage`` or ``panel`` of an episode; None where a frame cannot be decoded."""
        try:
            tiles = drawn_tiles(self._env, list(steps), self._frames)
            pixels = (
                collage(tiles.frames, tiles.labels) if kind == "collage" else panel(tiles.steps, label["pivot_step"])
            )
            return self._frames.image(pixels, steps[0]["frame_id"])["bytes"]
        except (PivotError, ValueError):
            return None

    def _new_frame(self, name: str, frame: EncodedFrame, drawn: dict[str, Draw]) -> Record:
        """Return a picture that the store may lack; new ones get a path that begins with ``name``."""
        path = self._paths.get(frame.frame_id)
        if path is None and frame.format in CODECS:
            path = f"frames/{self._number}/{name}-{len(drawn)}.{CODECS[frame.format].suffix}"
            drawn[path] = partial(bytes, frame.image)
        return {"id": frame.frame_id, "src": path}

    # Requests

    def _analyzer(
        self, row: int, label: Record, steps: Sequence[Record], texts: Texts, drawn: dict[str, Draw]
    ) -> Record:
        """Return what an Analyzer is shown of a failure and should answer, and the requests to the teacher."""
        record: Record = {"collage": None, "panel": None, "completion": label["target"]}
        frames = [*(step["frame_id"] for step in steps), *(step["next_frame_id"] for step in steps[-1:])]
        suffixes = {self._formats.get(name) for name in frames}
        if steps and None not in suffixes:
            suffix = CODECS[self._formats[frames[0]]].suffix
            for kind in ("collage", "panel") if label["pivot_step"] is not None else ("collage",):
                record[kind] = f"frames/{self._number}/{kind[0]}{row}-0.{suffix}"
                drawn[record[kind]] = partial(self._composed, kind, steps, label)
        calls = self._requests.teacher_calls(label["episode_id"])
        teacher = self._requests.prompt(label["teacher_prompt_hash"], texts) if label["teacher_prompt_hash"] else None
        for message in () if teacher is None else teacher["messages"] or ():
            for part in message["parts"]:
                if "src" in part:
                    part["src"] = part["src"] or record["collage"]
        prompt = self._requests.prompt(label["prompt_hash"], texts, record["collage"])
        return record | {"prompt": prompt, "teacher": teacher, "calls": calls}


def _short(problem: str | None) -> str | None:
    """Cut a reason that may quote a whole reply."""
    return problem if problem is None or len(problem) <= MOST_PROBLEM else problem[:MOST_PROBLEM] + " …"


def _with_json(row: Record, columns: Sequence[str]) -> Record:
    return {name: parsed(value) if name in columns else plain(value) for name, value in row.items()}


def _retries_of(store: Store, shard: Shard) -> dict[str, list[Record]]:
    """Return the retries of a probe by failure, in the order of the arms; none where the store was not probed.

    Raises:
        StoreError: the file is torn, or has other columns.
    """
    retries: dict[str, list[Record]] = {}
    if {SETTINGS_FILE, probe_file(shard)} <= store.listed:
        for row in read_table(store.storage, probe_file(shard), PROBE).to_pylist():
            if row["label_version"] == str(store.config.label_version):
                retries.setdefault(row["episode_id"], []).append({name: plain(row[name]) for name in _OF_RETRY})
    return retries


def _as_failed(episode: Record, steps: Sequence[Record]) -> FailedEpisode:
    """Return any episode in the form of solvers and replays; columns that are not JSON stay text."""
    settings = parsed(episode["env_config"])
    cells = {name: [step[name] for step in steps] for name in STEP_COLUMNS}
    return FailedEpisode.of(
        {name: episode[name] for name in EPISODE_COLUMNS}
        | {name + "s": [step[name] for step in steps] for name in ("action", "reward")}
        | {"env_config": settings if isinstance(settings, dict) else {}},
        cells | {"info": list(map(parsed, cells["info"]))},
    )
