"""Credit per turn, successes included: one row per turn that the solver can measure (:mod:`pivot.solvers.credit`)."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import pyarrow as pa

from ...core.plugins import Settings
from ...environments.base import actions_per_turn
from ...solvers.base import Case, Solver, Unsolved
from ...solvers.credit import RULES, turn_credits
from ..store.schema import EPISODES, STEPS, STRINGS, Column, TableSchema
from .base import TURN, LabelledEpisode, LabelledShard, TrainerExporter, provenance

CREDIT = TableSchema(
    "credit",
    "One row per turn of each complete episode.",
    (
        *TURN,
        *STEPS.only("action", "reward"),
        *EPISODES.only("success", "horizon"),
        Column("need_before", pa.int32(), "Needed turns (primitiveskill: stages) before the turn; null if beyond."),
        Column("need_after", pa.int32(), "The same after the turn."),
        Column("slack", pa.int32(), "Turns left after the turn minus `need_after`; null without a need."),
        Column("within_reach", pa.bool_(), "Whether the goal can still be reached after the turn."),
        Column("progress", pa.int32(), "`need_before - need_after`; null where either is null."),
        Column("is_pivot", pa.bool_(), "Whether the turn is the first after which the goal is out of reach."),
        Column("safe_actions", STRINGS, "Actions after which the goal was certainly within reach; see the docs."),
        Column("score", pa.float64(), "Score of the turn by `rule`."),
        Column("rule", pa.string(), "Name of the rule."),
    ),
)


class CreditSettings(Settings):
    """Settings of the format."""

    rule: Literal["progress", "slack", "pivot"] = "progress"
    """Rule of the column `score`."""


class CreditExporter(TrainerExporter):
    """Rows of credit."""

    name: ClassVar[str] = "credit"
    plays: ClassVar[bool] = True
    summary: ClassVar[str] = (
        "Each row is one turn of an episode: what success took before and after it, the safe actions, and a score by "
        "a named rule."
    )
    config_type: ClassVar[type[Settings]] = CreditSettings
    settings: CreditSettings

    @classmethod
    def refusal(cls, solver: type[Solver]) -> str | None:
        """Refuse solvers whose certificate measures no state."""
        return "its certificate is a convention, which measures no state" if solver.kind == "convention" else None

    def schema(self) -> TableSchema:
        """Return the columns."""
        return CREDIT

    def rows(self, shard: LabelledShard) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the turns of all episodes; an episode has none that the solver cannot measure or nothing confirms."""
        solver = shard.store.run.envs[shard.shard.env].solver()
        episodes = [each for each in shard.episodes() if each.evidence]
        cases = [case_of(each) for each in episodes]
        for each, case, measured in zip(episodes, cases, solver.measure(cases), strict=True):
            if isinstance(measured, Unsolved):
                continue
            shared = provenance(each, solver.kind)
            shared |= {name: each.episode[name] for name in ("success", "horizon")}
            for step, turn in zip(each.steps, turn_credits(case, measured, RULES[self.settings.rule]), strict=True):
                cells = {name: step[name] for name in ("t", "action", "reward")}
                yield (
                    each.side,
                    {**shared, **cells, **turn._asdict(), "rule": self.settings.rule}
                    | {"safe_actions": list(turn.safe_actions)},
                )


def case_of(each: LabelledEpisode) -> Case:
    """Return an episode as input of a solver."""
    episode, steps = each.episode, each.steps
    states = [step["state"] for step in steps]
    return Case(
        episode["initial_state"],
        episode["actions"],
        episode["horizon"],
        [json.loads(step["info"]) for step in steps],
        [step["observation_text"] for step in steps],
        actions_per_turn(json.loads(episode["env_config"])),
        () if None in states else states,
    )
