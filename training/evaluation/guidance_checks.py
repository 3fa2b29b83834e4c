"""Is the guidance of a reading factual? Judged by the filters that labels must pass, against the proved label.

A reading is held against the facts of the episode, not against its own pivot: guidance that names another step than the
one that lost the episode is counted as ``unrelated``. Rules about the label itself do not apply and are left out.
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
    """Judges guidance; holds the environments that it re-executes episodes in until it is closed."""

    def __init__(self) -> None:
        """Find the filters."""
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
        """Return everything that is wrong with a text about the failure of a dataset row; none when it may stay.

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
    """Return the episode as far as the record tells it; no rule about texts reads rewards or frames."""
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
    """Return the label as a verdict; the safe actions, which no row holds, come from the solver where it agrees."""
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
