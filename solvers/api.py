"""``pivot.certify`` and ``pivot.certify_batch``: labels of episodes, in memory."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from ..core import plugins
from ..core.errors import CertifyError
from .base import Case, Solver, Unsolved, Verdict
from .cases import read_case, read_episodes, read_trajectories, shown, solver_of, whole

if TYPE_CHECKING:
    import gymnasium

TIME_LIMIT = 60.0
"""Default time limit, seconds. Typical answers take microseconds, a search of 20 M states (the default cap) minutes."""
CAP = "max_states"
"""Name of the solver setting that limits its searches."""
FIRST_CAP, GROWTH = 50_000, 4
"""Under a time limit: cap of states of the first search, and largest growth factor of the cap between searches, so that
at most a third of the work is repeated."""


def certify(
    env: Any,
    initial_state: str = "",
    actions: Sequence[Any] = (),
    horizon: int = 0,
    *,
    seed: int | None = None,
    rewards: Sequence[float] = (),
    steps: Sequence[Mapping[str, Any]] = (),
    observations: Sequence[str] = (),
    distances: Sequence[float] = (),
    actions_per_turn: int = 1,
    time_limit: float | None = TIME_LIMIT,
    **settings: Any,
) -> Verdict:
    """Find the pivot step of one failed episode, and return it with a certificate.

    Args:
        env: environment name, such as ``sokoban``; or a gymnasium environment, or a function that makes one, which is
            then searched (:func:`pivot.explore`).
        initial_state: level text in the environment's state format (XSB for Sokoban), or in the symbols of VAGEN's text
            states. Empty for a live environment.
        actions: action names, one per turn, case-insensitive; ``invalid`` for a reply without a usable action. Of a
            live environment also members of its action space.
        horizon: ``T_max``, the turn budget; remaining turns are computed from it, not from the number of actions.
        seed: seed of ``reset`` of a live environment.
        rewards: the recorded rewards of a live environment, which are then compared with a replay.
        steps: the logged ``info`` of each step, for solvers that read the log; exact ones ignore it.
        observations: the text observation before each action, for solvers that read it (primitiveskill).
        distances: metres to the target before the first action and after each action; for navigation only, instead of
            ``steps`` and of ``initial_state``, which must then be empty.
        actions_per_turn: most actions of a turn, in Sokoban and FrozenLake; a turn of several is one name, such as
            ``up|left`` or ``up, left``, ``horizon`` and the certificate count turns.
        time_limit: seconds until a search gives up; None for no limit. It does not change an answer that is found.
        settings: settings of the solver, such as ``max_states``, the maximum number of states of a search; of a live
            environment those of :func:`pivot.explore`, with ``actions_by_name`` for its ``actions``.

    Returns:
        Pivot step, failure mode, certificate, witness plan and the actions that were still safe.

    Raises:
        CertifyError: an argument is of the wrong type (the message names it), the episode succeeded or does not fit the
            level, or the search hit a limit.
        PluginError: the solver does not exist.
    """
    seconds = _seconds(time_limit)
    if not isinstance(env, str) and (callable(env) or hasattr(env, "unwrapped")):
        from .closure.certified import certify_played  # noqa: PLC0415 - imports gymnasium

        limited = {"max_seconds": seconds} | settings
        return certify_played(env, actions, whole("horizon", horizon), seed=seed, rewards=rewards, **limited)
    kind, solver_settings = solver_of(env, settings)
    case = read_case(kind, initial_state, actions, horizon, steps, observations, distances, actions_per_turn)
    answer = _answers(kind, solver_settings, [case], seconds)[0]
    if isinstance(answer, Unsolved):
        raise CertifyError(f"{answer.reason}: {answer.detail}")
    return answer


def certify_batch(
    env: "str | Callable[..., gymnasium.Env[Any, Any]]",
    episodes: Iterable[Mapping[str, Any]],
    *,
    time_limit: float | None = TIME_LIMIT,
    **settings: Any,
) -> list[Verdict | Unsolved]:
    """Label many failed episodes of one environment in one call, which is much faster than one by one.

    Args:
        env: environment name; or a function that makes a gymnasium environment of your own, whose levels are searched
            and checked once each. Its episodes have ``actions``, ``horizon`` and ``seed``, the seed of ``reset``; if
            the function takes a level, ``level``, which is given to it; and optionally ``options`` and ``rewards``.
        episodes: mappings with ``initial_state``, ``actions`` and ``horizon``, and if required ``steps``,
            ``observations``, ``distances`` or ``actions_per_turn``, as for :func:`certify`; other keys are ignored but
            for ``env_config``, so rows of the table ``episodes`` are valid.
        time_limit: seconds for all episodes, or for each level of an environment of your own; None for no limit.
        settings: settings of the solver, or of :func:`pivot.explore`, with ``actions_by_name`` for its ``actions``.

    Returns:
        A verdict per episode, in order, or an :class:`.Unsolved` with the reason why there is none.

    Raises:
        CertifyError: an argument or a field of an episode is missing or of the wrong type.
        PluginError: the solver does not exist.
    """
    seconds = _seconds(time_limit)
    if not isinstance(env, str):
        from .closure.batch import verdicts  # noqa: PLC0415 - imports gymnasium

        return [*verdicts(env, read_trajectories(episodes), {"max_seconds": seconds} | settings)]
    kind, solver_settings = solver_of(env, settings)
    cases = read_episodes(kind, episodes)
    return _answers(kind, solver_settings, cases, seconds)


def _seconds(limit: float | None) -> float:
    """Return a time limit, checked; infinite for None."""
    if limit is None:
        return inf
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CertifyError(f"time_limit: found {shown(limit)}, expected seconds, more than 0, or None")
    return limit


def _answers(
    kind: type[Solver], settings: plugins.Settings, cases: list[Case], seconds: float
) -> list[Verdict | Unsolved]:
    """Label cases; under a time limit, raise the cap of states until the time is used up."""
    most: int | None = getattr(settings, CAP, None)
    if seconds == inf or most is None:
        return kind(settings).certify(cases)
    answers: list[Verdict | Unsolved] = []
    left, cap, deadline = list(range(len(cases))), min(FIRST_CAP, most), time.monotonic() + seconds
    while True:
        began = time.monotonic()
        made = kind(settings.model_copy(update={CAP: cap})).certify([cases[place] for place in left])
        answers = answers or made
        for place, answer in zip(left, made, strict=True):
            answers[place] = answer
        left = [place for place in left if _hit_limit(answers[place])]
        if not left or cap == most:
            return answers
        now = time.monotonic()
        growth = min(GROWTH, (deadline - now) / max(now - began, 1e-9))  # time is about proportional to the cap
        if growth <= 1:
            break
        cap = min(most, int(cap * growth))
    for place in left:
        detail = f"no answer after {cap} states and {seconds:g} s; raise time_limit, or None for none"
        answers[place] = Unsolved("solver_limit", detail)
    return answers


def _hit_limit(answer: Verdict | Unsolved) -> bool:
    return isinstance(answer, Unsolved) and answer.reason == "solver_limit"
