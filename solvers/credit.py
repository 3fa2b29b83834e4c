"""``pivot.credit``: needed turns, slack and a score per turn of an episode, in memory, for the loop of a trainer.

With ``need(s)`` the amount that success takes from a state by the measure of the certificate, and ``k`` the turns left
after the turn from s to s': ``slack = k - need(s')``, ``progress = need(s) - need(s')``, the goal is within reach while
``slack >= 0``, and the pivot is the first turn after which it is not. A need is None where
it is more than the horizon, for ever or not, exactly as in the column ``need`` of the table ``steps``.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import CertifyError
from .base import Case, Needs, Unsolved
from .cases import read_episodes, read_trajectories, shown, solver_of

if TYPE_CHECKING:
    import gymnasium


class TurnCredit(NamedTuple):
    """Credit of one turn: needed turns before and after it, slack and score."""

    need_before: int | None
    """Needed amount before the turn, in turns (primitiveskill: stages); None where it is more than the horizon."""
    need_after: int | None
    """Needed amount after it."""
    slack: int | None
    """Turns left after the turn minus ``need_after``; negative once the goal is out of reach, None without a need."""
    within_reach: bool
    """Whether the goal can still be reached after the turn: ``slack`` is 0 or more."""
    progress: int | None
    """``need_before - need_after``; None where either is None."""
    is_pivot: bool
    """Whether the turn is the first after which the goal is out of reach; turn 0 if it was from the start. False for
    the last turn of a failure without such a turn, which its label names by convention (``fallback``)."""
    safe_actions: tuple[str, ...]
    """Actions before the turn after which the goal is certainly within reach, see :class:`.base.Needs`."""
    score: float = 0.0
    """The number of the rule."""


Rule = Callable[[TurnCredit], float]


def progress(turn: TurnCredit) -> float:
    """Return the progress of a turn; -1 if the goal becomes unreachable within a full horizon, +1 if reachable."""
    if turn.progress is not None:
        return float(turn.progress)
    return float((turn.need_after is not None) - (turn.need_before is not None))


def slack(turn: TurnCredit) -> float:
    """Return the turns to spare after a turn, -1 where the goal is out of reach."""
    return float(turn.slack) if turn.slack is not None and turn.within_reach else -1.0


def pivot(turn: TurnCredit) -> float:
    """Return -1 for the pivot and 0 for every other turn."""
    return -1.0 if turn.is_pivot else 0.0


RULES: Mapping[str, Rule] = {"progress": progress, "slack": slack, "pivot": pivot}
"""Named rules; docs/how-to/exports.md says what is known about each."""


def credit(
    env: "str | Callable[..., gymnasium.Env[Any, Any]]",
    episodes: Iterable[Mapping[str, Any]],
    *,
    rule: str | Rule = "progress",
    **solver_settings: Any,
) -> list[tuple[TurnCredit, ...] | Unsolved]:
    """Return the credit of each turn of many episodes, in memory; successful episodes are accepted.

    Args:
        env: environment name. The credit of ``sokoban``, ``frozenlake`` and ``gym`` is exact; that of ``navigation``
            rests on a lower bound and that of ``primitiveskill`` on a heuristic. Or a function that makes an
            environment of your own, as for :func:`pivot.certify_batch`; its credit is exact.
        episodes: mappings as for :func:`pivot.certify_batch`; rows of the table ``episodes`` are valid. Put the
            episodes of a level next to each other: they then share its search.
        rule: name of a rule of :data:`RULES`, or a function from a :class:`TurnCredit` (with score 0) to a number.
        solver_settings: settings of the solver, such as ``max_states``.

    Returns:
        Per episode, in order, one :class:`TurnCredit` per turn, or an :class:`.Unsolved` with the reason why there is
        none.

    Raises:
        CertifyError: an argument is missing or of the wrong type, a rule returned no finite number, or the certificate
            of the environment is only a convention (svg).
        PluginError: the solver does not exist.
    """
    score = rule_of(rule)
    if not isinstance(env, str):
        from .closure.batch import needs  # noqa: PLC0415 - imports gymnasium

        trajectories = read_trajectories(episodes)
        cases = [Case("", tuple(map(str, each["actions"])), each["horizon"]) for each in trajectories]
        measured = [*needs(env, trajectories, solver_settings)]
    else:
        kind, settings = solver_of(env, solver_settings)
        cases = read_episodes(kind, episodes)
        measured = kind(settings).measure(cases)
    return [
        answer if isinstance(answer, Unsolved) else turn_credits(case, answer, score)
        for case, answer in zip(cases, measured, strict=True)
    ]


def rule_of(rule: str | Rule) -> Rule:
    """Return a rule by its name, or the rule itself.

    Raises:
        CertifyError: the rule is unknown.
    """
    named = RULES.get(rule) if isinstance(rule, str) else rule
    if not callable(named):
        raise CertifyError(f"rule: found {shown(rule)}, expected one of {', '.join(RULES)}, or a function")
    return named


def turn_credits(case: Case, measured: Needs, rule: Rule) -> tuple[TurnCredit, ...]:
    """Return the credit of every turn of an episode.

    Raises:
        CertifyError: the rule returned no finite number.
    """
    needs, left, lost = measured.needs, case.horizon, False
    credits_: list[TurnCredit] = []
    made = tuple.__new__  # a third of the time of the constructor
    before = needs[0]
    out_at_start = before is None or before > left
    for after, safe in zip(needs[1:], measured.safe_actions, strict=True):
        left -= 1
        within = after is not None and after <= left
        is_pivot = not lost and (not within or out_at_start)
        lost = lost or is_pivot
        facts = (
            before,
            after,
            None if after is None else left - after,
            within,
            None if before is None or after is None else before - after,
            is_pivot,
            safe,
        )
        turn = made(TurnCredit, (*facts, 0.0))
        score = rule(turn)
        if type(score) is not float or score - score != 0.0:  # infinite, or no number
            score = _checked(score, turn)
        credits_.append(made(TurnCredit, (*facts, score)))
        before = after
    return tuple(credits_)


def _checked(score: Any, turn: TurnCredit) -> float:
    """Return the answer of a rule as a finite number."""
    number = float(score) if isinstance(score, int | float) and not isinstance(score, bool) else nan
    if not isfinite(number):
        raise CertifyError(f"rule: found {shown(score)} for {shown(turn)}, expected a finite number")
    return number
