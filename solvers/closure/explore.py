"""Breadth-first search through all states of a level, and the checks that its result describes the environment."""

import gc
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np

from ...core.errors import CertifyError
from .actions import allowed, members
from .advice import AdvisedError, ClockError, ContradictionError, naming_code, raised, short
from .checks import CHECK_SECONDS, WALK, Check, check_goal_reward, walks_of
from .fresh import HASHES, Question, compare, draw_once, packed
from .graph import Graph
from .packages import PACKAGES, package_of
from .search import Limits, Search
from .state import Keys, bare, counters, keys_of, layers_of
from .success import NoSuccessError, Rule, settle
from .worlds import Env, How, Illegal, Reading, Success, made_by, worlds_of

CHECKS = 256
FRESH = 16
"""Random walks that are replayed in a new process."""
_WALKED: set[tuple[type, ...]] = set()
"""Environments, by the classes of their layers, of which a level was replayed in a new process."""
_SEARCH_SHARE = 0.6
"""Share of the time that the search may take; the rest is left for checks."""


@naming_code()
def explore(  # noqa: PLR0915 - one story
    env: Env | Callable[[], Env],
    *,
    actions: Mapping[str, Any] | Sequence[Any] | None = None,
    seed: int | None = 0,
    options: dict[str, Any] | None = None,
    key: Callable[[Env], Hashable] | Literal["state", "attributes", "observation"] = "state",
    success: Success | str = "",
    clock: Sequence[str] | None = None,
    drawing: Sequence[str] = (),
    how: How | None = None,
    illegal: Illegal = "refuse",
    max_states: int = 1_000_000,
    max_steps: int = 20_000_000,
    max_depth: int | None = None,
    max_seconds: float = 600.0,
    max_megabytes: int = 2_000,
    horizon: int | None = None,
    checks: int = CHECKS,
    fresh: bool | None = None,
    joins: bool = True,
) -> Graph:
    """Search all states of one level of a deterministic environment, and check the result.

    Args:
        env: a gymnasium environment, or a function that makes one.
        actions: actions by name, or a list of them (their ``str`` is the name); all of a discrete action space by
            default.
        seed: seed of ``reset``, which chooses the level.
        options: options of ``reset``.
        key: state key of the environment; equal keys must mean equal futures. By default all its attributes, or those
            that matter in a known package (MiniGrid, toy text); ``attributes`` for all of them there, too;
            ``observation`` is quicker where it shows everything.
        success: whether a step succeeds: a function of environment, reward, ``terminated`` and ``info``; or the name
            of a rule, see :mod:`pivot.solvers.closure.success`. By default ``info["success"]`` or
            ``info["is_success"]``, else the positive reward that nothing but ends of the episode pays.
        clock: attributes of ``env.unwrapped`` that count turns, such as MiniGrid's ``step_count``; they are held still,
            and checked to decide nothing but rewards. By default the integers that every step raises equally; if more
            than rewards depends on them, they are part of the state. Empty: no clock.
        drawing: attributes of ``env.unwrapped`` that decide nothing but pictures.
        how: how to come back to a state; by default the first of ``snapshot``, ``deepcopy`` and ``replay`` that the
            environment offers and that leads where a replay leads.
        illegal: what an illegal action in an episode means, one that ``info["action_mask"]`` excludes or that raises:
            ``refuse`` the episode, and a level in which an action raises; or ``invalid``, a turn without an action. No
            plan contains one, and it is never safe.
        max_states: limit on states.
        max_steps: limit on steps of the environment.
        max_depth: limit on the turns from the start; None for none. It ends the search of states that never repeat.
        max_seconds: limit on the time of the search and of its checks.
        max_megabytes: limit on the growth of memory.
        horizon: turns from the start after which the search ends if no step led back to an earlier turn, as where a
            clock is part of the state, whose states would not end otherwise; None for no limit.
        checks: number of states whose successors are tried again by replay, by each of two paths that lead there, and
            of random walks that are replayed, at most: once eight of each are, the checks end after a second, or twice
            the time of the search if that is longer.
        fresh: whether walks are also replayed in a new process, which takes about a second and shows what depends on
            the process, such as global variables and the hash of a text. By default in the first level of each
            environment that is not of a known package and can be sent to a process.
        joins: whether a clock that was found by play becomes part of the state if more than rewards depends on it.

    Raises:
        CertifyError: a setting does not fit, a step raised, the level does not show what success is, or the
            environment contradicts the graph: it is random, or has state that ``key`` does not show.
    """
    factory, played = env, None
    if isinstance(env, type) or not hasattr(env, "unwrapped"):
        if not callable(env):
            raise CertifyError(
                f"env: found {short(env)}, expected a gymnasium environment or a function that makes one"
            )
        env, played = made_by(env), env
    observed = key == "observation"
    env = bare(env, observed=observed)
    kinds = tuple(type(each) for each in layers_of(env))
    if fresh is None and (kinds in _WALKED or package_of(env) in PACKAGES):
        fresh = False
    source = factory if played is not None else partial(_itself, env)
    factory_bytes = None if fresh is False else packed(source, kinds)
    named = members(env, actions)
    listed = tuple(named.values())
    counted = ()
    if clock is None or horizon:
        with suppress(Exception):  # windows, sockets and generators cannot be copied
            played = deepcopy(env) if played is None else bare(played(), observed=observed)
        counted = _clock(env if played is None else played, listed, seed, options, illegal)
        if played is not None:
            draw_once(env, seed, options)
    turns = counted if clock is None else tuple(clock)
    end = time.monotonic() + max_seconds
    limits = Limits(max_states, max_steps, max_seconds, max_megabytes, max_depth, horizon)
    declared = clock is not None and joins
    read = partial(
        _reading,
        success=success,
        key=key,
        clock=turns,
        drawing=tuple(drawing),
        actions=listed,
        illegal=illegal,
        is_declared=declared,
    )
    try:
        search = _searched(env, named, seed, options, read, limits, how, checks, end)
    except ClockError:
        if clock is not None or not joins:
            raise
        read = partial(read, clock=())
        turns, search = (), _searched(env, named, seed, options, read, limits, how, checks, end)
    check_goal_reward(search, [name for name in counted if name not in turns], horizon or WALK)
    if fresh is not False and search.keys:
        shown = search.world.reading.key
        asks = isinstance(shown, Keys) and (shown.asks("hash") or shown.asks("id"))
        if factory_bytes is not None:
            walks = [search.legal(walk) for walk in islice(walks_of(search, checks), FRESH + 2 * len(named))]
            plays = [[search.actions[place] for place in walk] for walk in walks]
            read = partial(read, success=search.world.reading.success.closed)
            times = HASHES if asks else 1
            question = Question(factory_bytes, observed, played is not None, seed, options, read, plays, times)
            compare(search, walks, question, end - time.monotonic())
            _WALKED.add(kinds)
        elif fresh or asks:
            raise AdvisedError(
                "fresh: found an environment that cannot be sent to another process"
                f"{', and whose code calls hash() or id(), which differ there' * asks}; expected functions and classes "
                "of a module; pass a function that makes the environment, or fresh=False"
            )
    shape = (len(search.keys), len(named))
    search.complete()
    successors = np.frombuffer(search.targets, np.int32).reshape(shape)
    rewards = np.frombuffer(search.rewards, np.float64).reshape(shape)
    return Graph(
        tuple(named),
        successors,
        rewards,
        search.world.how,
        search.steps,
        search.limit,
        by_machine=search.by_machine,
        won_at_start=not search.keys,
        success=search.success,
        illegal=illegal,
    )


def _itself(env: Env) -> Env:
    """Return the environment, which can be sent to another process unchanged."""
    return env


def _searched(
    env: Env,
    named: Mapping[str, Any],
    seed: int | None,
    options: dict[str, Any] | None,
    read: Callable[[Env], Reading],
    limits: Limits,
    how: How | None,
    checks: int,
    end: float,
) -> Search:
    """Search a level and check the result, by the first way to restore states that agrees with a replay."""
    kinds = worlds_of(env, how, snapshots=read(env).snapshot is not None)
    while True:
        kind = kinds.pop(0)
        reading = read(env)
        check: Check | None = None
        begun, left = time.process_time(), max(end - time.monotonic(), 0.0)
        search = Search(
            kind(env, seed, options, reading), tuple(named.values()), replace(limits, seconds=_SEARCH_SHARE * left)
        )
        try:
            search.limit = search.run(limits.seconds)
            search.world.finish()
            if search.limit == f"horizon = {limits.horizon}" and reading.clock and not reading.is_declared:
                raise ClockError(
                    f"without {', '.join(reading.clock)}, every turn led to a new state all the same; set "
                    "gym.clock=[], which makes it part of the state"
                )
            unclear: CertifyError | None = None
            try:
                search.success = settle(search, search.limit)
            except CertifyError as error:
                unclear = error
            if search.keys:
                now = time.process_time()
                check = Check(search, checks, now + max(CHECK_SECONDS, 2 * (now - begun)), end)
                search.steps += check.run()
            if unclear is not None:  # first the checks: a random environment shows no rule
                timed = search.world.reading.clock and not search.world.reading.is_declared
                if timed and search.limit is None and isinstance(unclear, NoSuccessError):  # perhaps in some turns
                    raise ClockError(unclear.in_settings) from unclear
                raise unclear
            return search
        except ContradictionError:
            if not kinds or not (check is None or check.repeats()):
                raise
            del search, check
            gc.collect()  # copies that the environment's own registers may hold
        except Exception as error:  # code of the environment, such as a snapshot with a different meaning
            if isinstance(error, CertifyError) or not kinds:
                raise


def _clock(
    env: Env, actions: Sequence[Any], seed: int | None, options: dict[str, Any] | None, illegal: Illegal
) -> tuple[str, ...]:
    """Return the attributes that count turns."""
    try:
        return counters(env, actions, seed, options, _mask(env, actions), illegal=illegal == "invalid")
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        raise CertifyError(
            f"{type(env.unwrapped).__name__} {raised(error)} while it was played; if an action is illegal in a state, "
            "exclude it in info['action_mask'], or pass illegal='invalid'; else repair the environment"
        ) from error


def _mask(env: Env, actions: Sequence[Any]) -> Callable[[Any], tuple[bool, ...] | None]:
    """Return the function that reads a mask of actions from ``info``."""
    return partial(allowed, env.action_space, actions) if package_of(env).masks else lambda _info: None


def _reading(
    env: Env,
    key: Callable[[Env], Hashable] | Literal["state", "attributes", "observation"],
    success: Success | str,
    clock: tuple[str, ...],
    drawing: tuple[str, ...],
    actions: tuple[Any, ...],
    illegal: Illegal,
    *,
    is_declared: bool,
) -> Reading:
    """Fill in what the caller left to the package."""
    package = package_of(env)
    if key == "observation":
        read = None
    elif key in ("state", "attributes"):
        read = (package.key if key == "state" else None) or keys_of(env, (*clock, *drawing))
    else:
        read = key
    return Reading(
        Rule(success),
        read,
        clock,
        package.snapshot,
        package.restore,
        (*drawing, *package.drawing),
        is_declared,
        _mask(env, actions),
        keys_of(env, (*clock, *drawing)) if illegal == "invalid" else None,
    )
