"""The check whether guidance in a reading is factual, by the filters that labels must pass, against the proved label.

Guidance is compared with the facts of the episode, not with the reading's own pivot: guidance about a step other than
the pivot is counted as ``unrelated``. Filters that do not judge text are left out.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ... import plugins
from ...datasets.predictors import LoggedFailure
from ...labeling.base import Draft, FailedEpisode, Filter, RejectReason, judge
from ...labeling.replay import Replays
from ...labeling.target import build_target
from ...solvers.base import Certificate, Solver, Verdict


class GuidanceJudge:
    """A judge of guidance; it keeps the environments in which it re-executes episodes until it is closed."""

    def __init__(self) -> None:
        """Load the filters that judge text."""
        kinds: list[type[Filter]] = [plugins.load("filters", name) for name in plugins.names("filters")]
        self._filters: Sequence[Filter] = [kind() for kind in kinds if kind.judges_text]
        self._solvers: dict[str, Solver] = {}
        self._replays = Replays()

    def __enter__(self) -> "GuidanceJudge":
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the environments."""
        self._replays.__exit__(*error)

    def reasons(self, record: Mapping[str, Any], guidance: str) -> tuple[RejectReason, ...]:
        """Return the reasons to reject a text about the failure of a dataset row; none if it is factual.

        Raises:
            PluginError: the environment or its solver is not installed.
        """
        episode = _episode(record)
        solver = self._solver(record["env"])
        verdict = _verdict(record, episode, solver)
        target = build_target(verdict.pivot_step, verdict.failure_mode, guidance)
        return judge(episode, Draft(verdict, guidance, target, solver, replays=self._replays), self._filters)

    def _solver(self, env: str) -> Solver:
        if env not in self._solvers:
            self._solvers[env] = plugins.load("solvers", env)()
        return self._solvers[env]


def _episode(record: Mapping[str, Any]) -> FailedEpisode:
    """Return the episode of a record; rewards and frames are placeholders, which no filter of texts reads."""
    steps = len(record["actions"])
    return FailedEpisode(
        episode_id=record["episode_id"],
        env=record["env"],
        env_version="",
        env_config=json.loads(record["env_config"]),
        task_id=record["task_id"],
        instruction="",
        initial_state=record["initial_state"],
        horizon=record["horizon"],
        actions=record["actions"],
        payloads=[None] * steps,
        rewards=[0.0] * steps,
        infos=LoggedFailure.of_record(record).infos,
        action_valid=[True] * steps,
        frame_ids=[""] * (steps + 1),
    )


def _verdict(record: Mapping[str, Any], episode: FailedEpisode, solver: Solver) -> Verdict:
    """Return the label as a verdict; its safe actions, which the row lacks, come from the solver if it agrees."""
    answer = solver.certify([episode.case()])[0]
    agrees = isinstance(answer, Verdict) and answer.pivot_step == record["pivot_step"]
    witness = record["witness"]
    return Verdict(
        pivot_step=record["pivot_step"],
        failure_mode=record["failure_mode"],
        certificate=Certificate(**record["certificate"]),
        witness=None if witness is None else tuple(witness),
        feasible_actions=answer.feasible_actions if isinstance(answer, Verdict) and agrees else (),
    )
