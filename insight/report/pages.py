"""The pages of a shard's episodes: stored rows, and what makes them readable, as plain data.

A page holds what is stored, with the certificate in words, and two things that are worked out again: how much was
needed before and after every step, and pictures of the plan that still worked at the pivot, where its environment
draws them at once. What cannot be worked out is left out with a reason; a broken episode is shown as it is stored.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...datasets.config import Shard, environment
from ...datasets.describe import certificate_text, reference_text
from ...datasets.proof.labels import stored_verdict
from ...datasets.schema import EPISODES, FRAMES, LABELS, STEPS
from ...datasets.store import Store
from ...datasets.tables import steps_by_episode
from ...errors import CertifyError, LevelError, PivotError
from ...images import CODECS
from ...labeling.action_log import FLOAT_DECIMALS, log_decimals
from ...labeling.episode import FailedEpisode
from ...labeling.replay import DisagreementError, Replays
from ...solvers.base import DistanceMap, ExactSolver
from .contents import FORMAT, outcome
from .plain import parsed, plain

MOST_LEVEL_TEXT = 20_000
"""Characters of a level text that are shown."""

MOST_PROBLEM = 300
"""Characters of a reason why something cannot be worked out."""

_STEP_COLUMNS = [name for name in STEPS.names if name not in ("response_token_ids", "response_logprobs", "snapshot")]
_JSON_OF_EPISODE = ("env_config", "policy_config")
_JSON_OF_STEP = ("info", "payload", "score_parts")
_JSON_OF_LABEL = ("solver_config", "teacher_config", "target")

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """One page, and the pictures that were drawn for it, by path."""

    record: Record
    drawn: dict[str, bytes]


class ShardPages:
    """Makes the pages of one shard; close it when they are made."""

    def __init__(self, store: Store, shard: Shard, number: int, *, draw_plans: bool = False) -> None:
        """Read the shard, which is the one of this ``number`` in the plan.

        With ``draw_plans`` plans are also drawn where a picture takes milliseconds, but no other program.

        Raises:
            StoreError: a file is missing, torn, or has other columns.
        """
        self._env, self._number, self._draw_plans = shard.env, number, draw_plans
        self._episodes = store.read(EPISODES, shard).to_pylist()
        self._steps = steps_by_episode(store.read(STEPS, shard, _STEP_COLUMNS).to_pylist())
        self._labels = {row["episode_id"]: row for row in store.read(LABELS, shard).to_pylist()}
        frames = store.read(FRAMES, shard, ["frame_id", "format", "image"])
        self._images = frames["image"].combine_chunks()
        self._paths: dict[str, str] = {}
        for place, (name, kind) in enumerate(
            zip(frames["frame_id"].to_pylist(), frames["format"].to_pylist(), strict=True)
        ):
            if kind in CODECS:
                self._paths[name] = f"frames/{number}/{place}.{CODECS[kind].suffix}"
        self._solver = store.run.env(shard.env).solver()
        self._replays = Replays()
        self._level: tuple[str, DistanceMap | str] | None = None

    def close(self) -> None:
        """Close the environments that drew."""
        self._replays.__exit__()

    def picture(self, place: int) -> bytes | None:
        """Return the stored picture at a place of the shard's frames."""
        return self._images[place].as_py() if 0 <= place < len(self._images) else None

    def page(self, row: int) -> Page:
        """Make the page of the episode in a row of the shard."""
        episode = self._episodes[row]
        steps = self._steps.get(episode["episode_id"], [])
        label = self._labels.get(episode["episode_id"])
        failed = _as_failed(episode, steps)
        witness, drawn = self._witness(row, failed, label, steps)
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
            "witness": witness,
        }
        return Page(record, drawn)

    def _frame(self, name: str) -> Record:
        return {"id": name, "src": self._paths.get(name)}

    def _level_text(self, episode: Record) -> str:
        text = episode["initial_state"]
        # A level from a stranger that cannot be described is shown as it is.
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

    # What is worked out again

    def _need(self, episode: FailedEpisode) -> Record:
        """Return what was needed at ``s_0 .. s_T``, or why that is not known."""
        solver, limit = self._solver, None
        values: Sequence[float | None] | None = None
        problem = None
        if isinstance(solver, ExactSolver):
            limit = 2 * max(episode.horizon, 1)
            values, problem = self._distances(solver, episode, limit)
        elif all(isinstance(info, Mapping) for info in episode.infos):
            values = solver.needs(episode.case())
        record = {"unit": solver.unit, "kind": solver.kind, "limit": limit, "problem": _short(problem)}
        return record | {"values": None if values is None else plain(list(values))}

    def _distances(
        self, solver: ExactSolver, episode: FailedEpisode, limit: int
    ) -> tuple[list[int | None] | None, str | None]:
        if self._level is None or self._level[0] != episode.initial_state:
            try:
                found: DistanceMap | str = solver.distance_map(episode.initial_state, limit)
            except (LevelError, CertifyError) as error:
                found = str(error)
            self._level = (episode.initial_state, found)
        distances = self._level[1]
        if isinstance(distances, str):
            return None, distances
        try:
            return [distances.distance(text) for text in self._replays.of(episode).states(episode)], None
        except (DisagreementError, PivotError) as error:
            return None, f"the episode cannot be played again: {error}"

    def _witness(
        self, row: int, episode: FailedEpisode, label: Record | None, steps: Sequence[Record]
    ) -> tuple[Record | None, dict[str, bytes]]:
        """Return the plan that still worked at the pivot, with its pictures where they are drawn at once."""
        if label is None or label["pivot_step"] is None or not label["witness"]:
            return None, {}
        pivot, plan = label["pivot_step"], label["witness"]
        record: Record = {"actions": plan, "frames": None, "problem": None}
        try:
            replayer = self._replays.of(episode)
            if not isinstance(self._solver, ExactSolver) and not (self._draw_plans and replayer.draws_here):
                return record, {}
            pictures = replayer.pictures_of_plan(episode, pivot, plan)
        except (DisagreementError, PivotError) as error:
            return record | {"problem": _short(f"the plan cannot be drawn: {error}")}, {}
        if pivot >= len(steps) or pictures[0].frame_id != steps[pivot]["frame_id"]:
            return record | {"problem": "the plan cannot be drawn: the pictures of this level are others now"}, {}
        frames, drawn = [], {}
        for place, each in enumerate(pictures):
            path = self._paths.get(each.frame_id)
            if path is None and each.format in CODECS:
                path = f"frames/{self._number}/w{row}-{place}.{CODECS[each.format].suffix}"
                drawn[path] = each.image
            frames.append({"id": each.frame_id, "src": path})
        return record | {"frames": frames}, drawn


def _short(problem: str | None) -> str | None:
    """Cut what may quote a whole reply."""
    return problem if problem is None or len(problem) <= MOST_PROBLEM else problem[:MOST_PROBLEM] + " …"


def _with_json(row: Record, columns: Sequence[str]) -> Record:
    return {name: parsed(value) if name in columns else plain(value) for name, value in row.items()}


def _as_failed(episode: Record, steps: Sequence[Record]) -> FailedEpisode:
    """Return any episode as solvers and replays take them, columns that are no JSON as they are."""
    settings = parsed(episode["env_config"])
    return FailedEpisode(
        episode_id=episode["episode_id"],
        env=episode["env"],
        env_version=episode["env_version"],
        env_config=settings if isinstance(settings, dict) else {},
        task_id=episode["task_id"],
        instruction=episode["instruction"],
        initial_state=episode["initial_state"],
        horizon=episode["horizon"],
        actions=[step["action"] for step in steps],
        payloads=[step["payload"] for step in steps],
        rewards=[step["reward"] for step in steps],
        infos=[parsed(step["info"]) for step in steps],
        action_valid=[step["action_valid"] for step in steps],
        frame_ids=[step["frame_id"] for step in steps] + [step["next_frame_id"] for step in steps[-1:]],
        observations=[step["observation_text"] for step in steps],
    )


__all__ = ["Page", "ShardPages"]
