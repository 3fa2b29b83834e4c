"""Checks of the guidance in a reading: its sentences are read back into statements and held against the proved label.

A reading is compared with the facts of the episode, not with its own pivot: a sentence about another step than the one
that lost the episode is ``untrue``, and one that no domain renders is an ``unknown_sentence``.
"""

import json
from collections.abc import Mapping
from typing import Any

from ... import plugins
from ...datasets.predictors import LoggedFailure
from ...labeling.action_log import log_decimals
from ...labeling.base import FailedEpisode, Objection
from ...labeling.domains import domain_of, offer_of
from ...labeling.filters import text_objection
from ...labeling.statements import Offer, Statement, UnknownSentenceError
from ...solvers.base import Certificate, Solver, Verdict


class GuidanceJudge:
    """Checks guidance; has one solver per environment."""

    def __init__(self) -> None:
        """Start without solvers."""
        self._solvers: dict[str, Solver] = {}

    def objection(self, record: Mapping[str, Any], guidance: str) -> Objection | None:
        """Return what is wrong with a text about the failure of a dataset row; None when every sentence is a fact.

        Raises:
            PluginError: the environment or its solver is not installed.
        """
        env = record["env"]
        if env not in self._solvers:
            self._solvers[env] = plugins.load("solvers", env)()
        solver, episode = self._solvers[env], _episode(record)
        verdict, case = _verdict(record, episode, solver), episode.case()
        (decimals,) = log_decimals(solver, [case], [verdict])
        offer = offer_of(plugins.load("environments", env).profile, episode, verdict, decimals)
        # Observations and replies are in no row: statements that need them come from the proved guidance alone.
        supported = Offer((*offer.signs, *_stated(record)), offer.facts, offer.actions)
        return text_objection(guidance, episode, verdict, supported)


def _stated(record: Mapping[str, Any]) -> list[Statement]:
    """Return the statements in the guidance of a row; none where it is prose."""
    try:
        return domain_of(record["env"]).sentences.read(record["failure_reason"] or "")
    except UnknownSentenceError:
        return []


def _episode(record: Mapping[str, Any]) -> FailedEpisode:
    """Return the episode as far as the record has it; no statement needs rewards or frames."""
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
    """Return the label as a verdict; the safe actions, which no row has, come from the solver where it agrees."""
    answer = solver.certify([episode.case()])[0]
    agrees = isinstance(answer, Verdict) and answer.pivot_step == record["pivot_step"]
    witness = record["witness"]
    return Verdict(
        pivot_step=record["pivot_step"],
        failure_mode=record["failure_mode"],
        certificate=Certificate(**record["certificate"]),
        fallback=isinstance(answer, Verdict) and agrees and answer.fallback,
        infeasible_at_start=bool(record["infeasible_at_start"]),
        witness=None if witness is None else tuple(witness),
        feasible_actions=answer.feasible_actions if isinstance(answer, Verdict) and agrees else (),
    )
