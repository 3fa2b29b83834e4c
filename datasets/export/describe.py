"""A labelled episode in words and as a figure, for ``pivot peek``, the card and the README."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collage.figure import failure_figure
from ...core.errors import NoStoreError, StoreError
from ...core.identity import ID_VERSION
from ...labeling.action_log import FLOAT_DECIMALS, log_decimals, log_lines, number_text
from ...solvers.base import TURN_SEPARATOR, Case
from ..store.config import Shard, environment
from ..store.dataset_rows import FrameReader, drawn_tiles
from ..store.schema import EPISODES, FRAMES, LABELS, STEPS
from ..store.store import Store
from ..store.tables import Rows, check_steps, parsed_cell, steps_by_episode, stored_verdict


class EpisodeView:
    """One stored episode with its steps and its current label, ready to be shown."""

    def __init__(self, store: Store, shard: Shard, episode_id: str) -> None:
        """Read the episode from its shard.

        Raises:
            StoreError: the shard lacks the episode, or its rows contradict each other.
        """
        self.store, self.shard = store, shard
        rows: dict[str, dict[str, Any]] = {}
        for schema in (EPISODES, LABELS):
            table = store.read(schema, shard)
            ids = table["episode_id"].to_pylist()
            if episode_id in ids:
                rows[schema.name] = table.slice(ids.index(episode_id), 1).to_pylist()[0]
        if EPISODES.name not in rows:
            raise StoreError(f"{store.root} holds no episode {episode_id!r}; list some with: pivot peek {store.root}")
        self.episode = rows[EPISODES.name]
        self.label = rows.get(LABELS.name)
        self.pivot_step: int | None = None if self.label is None else self.label["pivot_step"]
        """The labelled pivot step, or None."""
        self.steps: Rows = steps_by_episode(store.read(STEPS, shard).to_pylist()).get(episode_id, [])
        check_steps(self.episode, self.steps, self.label)
        self._infos: list[dict[str, Any]] = [parsed_cell(step, "info") for step in self.steps]

    @cached_property
    def decimals(self) -> int:
        """Number of decimals of measurements, the same in log and certificate."""
        if self.label is None or self.pivot_step is None:
            return FLOAT_DECIMALS
        episode, solver = self.episode, self.store.run.envs[self.episode["env"]].solver()
        observations = [step["observation_text"] for step in self.steps]
        case = Case(episode["initial_state"], episode["actions"], episode["horizon"], self._infos, observations)
        return log_decimals(solver, [case], [stored_verdict(self.label)])[0]

    @property
    def log(self) -> list[str]:
        """The compact action log with all fields, also if the Analyzer's log has fewer."""
        fields = environment(self.episode["env"]).profile.log_fields
        return log_lines(fields, self.episode["actions"], self._infos, self.decimals)

    @property
    def title(self) -> str:
        """Environment and outcome of the episode."""
        env, label = self.episode["env"], self.label
        if label is None or label["pivot_step"] is None:
            outcome = "solved" if self.episode["success"] else self.episode["stop_reason"]
            return f"{env}: {outcome}"
        return f"{env}: {label['failure_mode']} at step {label['pivot_step']}"

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values of the main facts about the episode."""
        episode, label = self.episode, self.label
        facts = [
            ("episode", episode["episode_id"]),
            ("level", f"{episode['task_id']}, rollout {episode['sample_idx']} by {episode['policy']}"),
            ("asked for", episode["instruction"]),
            ("return", f"{episode['episode_return']:.2f} in {episode['num_steps']} of {episode['horizon']} turns"),
        ]
        if episode["error"]:
            facts.append(("error", episode["error"]))
        if label is None:
            return facts
        if label["certificate"] is not None:
            facts.append(("certificate", certificate_text(label["certificate"], self.decimals)))
            if (reference := reference_text(label["certificate"])) is not None:
                exact = label["certificate"]["reference_kind"] == "exact"
                facts.append(("by the true way" if exact else "by a bound that holds", reference))
        if label["pivot_action"] is not None:
            turn = self.episode["actions"][label["pivot_step"]].split(TURN_SEPARATOR)
            number = label["pivot_action"] + 1
            facts.append(("the action that lost it", f"{turn[number - 1]}, number {number} of {len(turn)} in its turn"))
        if label["witness"]:
            facts.append(("a plan that still worked before the pivot", " ".join(label["witness"])))
        if label["feasible_actions"]:
            facts.append(("safe actions at the pivot", ", ".join(label["feasible_actions"])))
        if label["failure_reason"]:
            facts.append((f"guidance by {label['teacher']}", label["failure_reason"]))
        facts.append(("rests on", ", ".join(label["evidence"] or ()) or "nothing that confirms its actions"))
        if not label["accepted"]:
            reasons = [f"{each['name']} ({each['kind']}): {each['detail']}" for each in label["reject_reasons"]]
            facts.append(("rejected", "; ".join(reasons)))
        return facts

    def figure(self, why: str | None = None) -> NDArray[np.uint8]:
        """Draw the episode with its label, and ``why`` it was chosen; RGB.

        Raises:
            StoreError: the episode has no step.
        """
        if not self.steps:
            raise StoreError(f"episode {self.episode['episode_id']} has no step, so there is nothing to draw")
        frames = FrameReader(self.store.read(FRAMES, self.shard))
        tiles = drawn_tiles(self.episode["env"], self.steps, frames)
        if environment(self.episode["env"]).profile.tiles != "outcomes":  # tiles of outcomes show the end already
            end = frames.pixels(self.steps[-1]["next_frame_id"])
            tiles = replace(tiles, frames=(*tiles.frames, end), labels=(*tiles.labels, "end"))
        facts = [*([] if why is None else [("chosen", why)]), *self.facts()]
        return failure_figure(tiles, self.title, facts, self.log, self.pivot_step)


def certificate_text(certificate: dict[str, Any], decimals: int = FLOAT_DECIMALS) -> str:
    """State a certificate in one sentence, with the log's number of decimals for scores."""
    unit = certificate["unit"]
    if certificate["kind"] == "convention":
        earlier = certificate["raw_before"]
        before = "there was none before" if earlier is None else f"the one before {number_text(earlier, decimals)}"
        return f"the last submission scored {number_text(certificate['raw_after'], decimals)}, {before} (convention)"

    least = "at least " if certificate["kind"] == "lower_bound" else ""
    verb = "open" if unit == "stages" else "needed"
    before, after = (_amount(certificate[side], unit, verb, least) for side in ("before", "after"))
    is_open = certificate["after"] is None and certificate["reachable_after"] is None
    if certificate["kind"] == "exact" and is_open:
        after = f"more than {certificate['budget_after']} are needed"
        if certificate["before"] is None:
            before = f"more than {certificate['budget_before']} are needed"
    left, later = (
        f"with {certificate[side]} turn{'s' * (certificate[side] != 1)} left"
        for side in ("budget_before", "budget_after")
    )
    return f"before the action {before} {left}; after it {after} {later} ({certificate['kind']})"


def reference_text(certificate: dict[str, Any]) -> str | None:
    """State the better reference of a certificate in one sentence; None without one."""
    if certificate["reference_pivot"] is None:
        return None
    latest, least = (" at the latest", "at least ") if certificate["reference_kind"] == "lower_bound" else ("", "")
    before, after = (
        _amount(certificate[side], "turns", "needed", least) for side in ("reference_before", "reference_after")
    )
    return (
        f"the task was lost at step {certificate['reference_pivot']}{latest}; before the pivot action {before}, after "
        f"it {after} ({certificate['reference_kind']})"
    )


def _amount(amount: float | None, unit: str, verb: str, least: str) -> str:
    if amount is None:
        return "the goal is out of reach"
    if amount == 1:
        return f"{least}1 {unit.removesuffix('s')} is {verb}"
    return f"{least}{amount:g} {unit} are {verb}"


def find_episode(store: Store, episode_id: str, shards: Sequence[Shard] | None = None) -> EpisodeView:
    """Find an episode by its id or an unambiguous beginning of it or of its digest, in some shards or in all.

    Raises:
        StoreError: no episode matches, or several do.
    """
    matches: list[tuple[Shard, str]] = []
    beginnings = (episode_id, f"episode-{ID_VERSION}-{episode_id}")
    for shard in store.shards if shards is None else shards:
        ids = store.read(EPISODES, shard, ["episode_id"])["episode_id"].to_pylist()
        matches += [(shard, each) for each in ids if each.startswith(beginnings)]
    if len(matches) == 1 or any(each == episode_id for _, each in matches):
        shard, exact = next((item for item in matches if item[1] == episode_id), matches[0])
        return EpisodeView(store, shard, exact)
    problem = f"{len(matches)} episodes" if matches else "no episode"
    raise NoStoreError(
        f"{store.root} holds {problem} whose id begins with {episode_id!r}; see: pivot peek {store.root}"
    )


def any_failure(store: Store, env: str | None = None) -> EpisodeView:
    """Return the first accepted failure of the store, preferring one whose pivot is not its first step.

    Raises:
        StoreError: the store, or that environment of it, has no accepted failure.
    """
    first: EpisodeView | None = None
    for shard in store.shards:
        if env is not None and shard.env != env:
            continue
        for row in store.read(LABELS, shard, ["episode_id", "accepted", "pivot_step"]).to_pylist():
            if row["accepted"] and row["pivot_step"] > 0:
                return EpisodeView(store, shard, row["episode_id"])
            if first is None:
                first = EpisodeView(store, shard, row["episode_id"])
    if first is None:
        environments = ", ".join(store.config.environments)
        sought = "any environment" if env is None else env or repr(env)
        what = f"holds no failure of {sought}; it holds: {environments}"
        if store.played is not None and env in (None, *store.config.environments):
            what = "has no labelled failure yet: labels come after all rollouts; look again later"
        raise NoStoreError(f"{store.root} {what}")
    return first
