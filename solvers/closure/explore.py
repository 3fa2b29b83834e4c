"""Breadth-first search through all states of a level, and the checks that its result describes the environment."""

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any, Literal, cast

import numpy as np

from ...errors import CertifyError
from .actions import allowed, member, named_actions
from .fresh import Question, elsewhere
from .graph import Graph, SuccessSteps
from .packages import package_of
from .search import Limits, Search
from .state import counters, difference, state_of
from .success import Rule, settle
from .worlds import Env, How, Illegal, Outcome, Reading, Success, advised, plain, raised, short, world_of

CHECKS = 256
FRESH = 16
"""Random walks that are replayed in a new process."""
WALK = 60
"""Least number of steps of a walk that checks the graph."""
DELAYS = 8
"""Maximum number of plans that are played after waiting somewhere on their way; they show counters in the state."""
IF_RANDOM = "if it is random, see docs/tutorials/your-environment.md#a-random-environment"
DRAWN = 4
"""Walks during which the environment is also rendered after every step."""


def explore(
    env: Env | Callable[[], Env],
    *,
    actions: Mapping[str, Any] | Sequence[Any] | None = None,
    seed: int | None = 0,
    options: dict[str, Any] | None = None,
    key: Callable[[Env], Hashable] | Literal["state", "observation"] = "state",
    success: Success | str = "",
    clock: Sequence[str] | None = None,
    how: How | None = None,
    illegal: Illegal = "refuse",
    max_states: int = 1_000_000,
    max_steps: int = 20_000_000,
    max_seconds: float = 600.0,
    max_megabytes: int = 2_000,
    checks: int = CHECKS,
    fresh: bool = False,
) -> Graph:
    """Search all states of one level of a deterministic environment, and check the result.

    Args:
        env: a gymnasium environment, or a function that makes one.
        actions: actions by name, or a list of them (their ``str`` is the name); all of a discrete action space by
            default.
        seed: seed of ``reset``, which chooses the level.
        options: options of ``reset``.
        key: state key of the environment; equal keys must mean equal futures. By default all its attributes, or those
            that matter in a known package (MiniGrid, toy text); ``observation`` is quicker where it shows everything.
        success: whether a step succeeds: a function of environment, reward, ``terminated`` and ``info``; or the name
            of a rule, see :mod:`pivot.solvers.closure.success`. By default ``info["success"]`` or
            ``info["is_success"]``, else the positive reward that nothing but ends of the episode pays.
        clock: attributes of ``env.unwrapped`` that count turns, such as MiniGrid's ``step_count``; they are held still,
            and checked to decide nothing but rewards. By default the integers that every step raises equally.
        how: how to come back to a state; the first that the environment offers of ``snapshot``, ``deepcopy``,
            ``replay``.
        illegal: what an illegal action in an episode means, one that ``info["action_mask"]`` excludes or that raises:
            ``refuse`` the episode, and a level in which an action raises; or ``invalid``, a turn without an action. No
            plan contains one, and it is never safe.
        max_states: limit on states.
        max_steps: limit on steps of the environment.
        max_seconds: limit on the time of the search.
        max_megabytes: limit on the growth of memory.
        checks: number of states whose successors are tried again by replay, by each of two paths that lead there, and
            of random walks that are replayed. A level with no more states is checked completely in this respect.
        fresh: whether walks are also replayed in a new process, which takes about a second and shows state outside of
            the environment, such as global variables. The environment must then be a function or class of a module.

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
        env, played = env(), env
    named = _named(env, actions)
    turns = tuple(clock) if clock is not None else _clock(env, played, list(named.values()), seed, options, illegal)
    rule, read = Rule(success), partial(_reading, key=key, clock=turns, actions=tuple(named.values()), illegal=illegal)
    reading = read(env, rule)
    world = world_of(env, seed, options, reading, how)
    search = Search(world, tuple(named.values()), Limits(max_states, max_steps, max_seconds, max_megabytes))
    limit = search.run()
    shown, unclear = SuccessSteps(""), None
    try:
        shown = settle(search, limit)
    except CertifyError as error:
        unclear = error
    steps = search.steps + (_check(search, checks) if search.keys else 0)
    if unclear is not None:  # first the checks: a random environment shows no rule
        raise unclear
    if fresh and search.keys:
        walks = [walk for walk, _ in zip(_walks(search, checks), range(FRESH + 2 * len(named)), strict=False)]
        walks = [search.legal(walk) for walk in walks]
        plays = [[search.actions[place] for place in walk] for walk in walks]
        for walk, outcomes in zip(
            walks, elsewhere(Question(factory, seed, options, read, rule.closed, plays)), strict=True
        ):
            _compare(search, walk, outcomes)
    shape = (len(search.keys), len(named))
    search.complete()
    successors = np.frombuffer(search.targets, np.int32).reshape(shape)
    rewards = np.frombuffer(search.rewards, np.float64).reshape(shape)
    return Graph(
        tuple(named),
        successors,
        rewards,
        world.how,
        steps,
        limit,
        won_at_start=not search.keys,
        success=shown,
        illegal=illegal,
    )


def _clock(
    env: Env,
    factory: Callable[[], Env] | None,
    actions: Sequence[Any],
    seed: int | None,
    options: dict[str, Any] | None,
    illegal: Illegal,
) -> tuple[str, ...]:
    """Return the attributes that count turns; the search does not begin with the environment that was played."""
    try:
        with suppress(Exception):  # windows, sockets and generators cannot be copied
            env = deepcopy(env) if factory is None else factory()
        mask = _mask(env, actions)
        return counters(env, actions, seed, options, mask, illegal=illegal == "invalid")
    except (Exception, SystemExit) as error:  # foreign code
        raise CertifyError(
            f"{type(env.unwrapped).__name__} {raised(error)} while it was played; if an action is illegal in a state, "
            "exclude it in info['action_mask'], or pass illegal='invalid'; else repair the environment"
        ) from error


def _reading(
    env: Env,
    rule: Rule,
    key: Callable[[Env], Hashable] | Literal["state", "observation"],
    clock: tuple[str, ...],
    actions: tuple[Any, ...],
    illegal: Illegal,
) -> Reading:
    """Fill in what the caller left to the package."""
    package = package_of(env)
    skip = frozenset((*clock, *package.constant))
    if key == "observation":
        read = None
    elif key == "state":
        read = package.key or (lambda each: state_of(each, skip))
    else:
        read = key
    full = partial(state_of, skip=skip) if illegal == "invalid" else None
    return Reading(rule, read, clock, package.snapshot, package.restore, _mask(env, actions), full)


def _mask(env: Env, actions: Sequence[Any]) -> Callable[[Any], tuple[bool, ...] | None]:
    """Return the function that reads a mask of actions from ``info``."""
    return partial(allowed, env.action_space, actions) if package_of(env).masks else lambda _info: None


def _named(env: Env, actions: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Any]:
    if actions is None:
        actions = named_actions(env)
    if isinstance(actions, Mapping):
        named = dict(cast(Mapping[str, Any], actions))
    else:
        named = {str(action): action for action in actions}
        if len(named) != len(actions):
            raise CertifyError(f"actions: found equal names in {short(list(actions))}, expected different ones")
    if not named:
        raise CertifyError("actions: found none, expected at least one")
    return {name: member(env.action_space, action) for name, action in named.items()}


def _check(search: Search, checks: int) -> int:
    """Hold the graph against the environment by replay from ``reset``; return the steps that took.

    Raises:
        CertifyError: they contradict each other; two paths are named.
    """
    steps = 0
    for number in _spread(search.expanded, checks):
        for path in search.paths(number):
            for place in range(len(search.actions)):
                steps += _replay(search, [*path, place], drawn=False)
    walks = _walks(search, checks)
    for count, walk in enumerate(walks):
        steps += _replay(search, walk, drawn=count < DRAWN + 2 * len(search.actions))
        if search.world.reading.clock:
            steps += _replay(search, walk, drawn=False, running=True)
    return steps


def _spread(count: int, most: int) -> Iterator[int]:
    """Yield at most ``most`` evenly spaced numbers below ``count``."""
    yield from range(count) if count <= most else (number * count // most for number in range(most))


def _walks(search: Search, checks: int) -> Iterator[list[int]]:
    """Yield the shortest plan, walks that repeat one action, plans that begin late, and random walks.

    Each is cut where it ends. Without a plan, the first walks try all actions in the state that was met last.
    """
    length, plan = max(WALK, 2 * search.depth), search.plan()
    if plan is None:
        last = search.path(search.expanded - 1)
        yield from ([*last, place] for place in range(len(search.actions)))
    else:
        yield plan
    yield from ([place] * length for place in range(len(search.actions)))
    if plan is not None:
        yield from search.delays(plan, length, min(checks, DELAYS))
    choose = random.Random(0)
    yield from islice(iter(lambda: choose.choices(range(len(search.actions)), k=length), None), checks)


def _apart(expected: Outcome, actual: Outcome) -> str:
    """Return the place where the keys of two outcomes differ, for a message."""
    where = difference(expected.key, actual.key)
    return f", which differ in {where}" if where else ""


def _differ(expected: Outcome, actual: Outcome) -> bool:
    """Return whether two outcomes of one step differ; ends are equal whatever state they leave behind."""
    if expected.won or actual.won:
        return expected.won != actual.won or expected.reward != actual.reward
    if expected.ended or actual.ended:
        return expected[1:] != actual[1:]
    return expected != actual


def _compare(search: Search, places: Sequence[int], outcomes: Sequence[Outcome]) -> None:
    """Compare the outcomes of a walk in a new process with the graph."""
    state = 0
    for step, (place, actual) in enumerate(zip(places, outcomes, strict=False)):
        expected = search.outcome(state, place)
        if _differ(expected, actual):
            path = [plain(search.actions[each]) for each in places[: step + 1]]
            raise CertifyError(
                f"the actions {path} end in {expected.shown} in this process, and in {actual.shown} in a new one"
                f"{_apart(expected, actual)}; the environment has state outside of itself, such as a global variable, "
                "a file or the time"
            )
        if actual.won or actual.ended or search.numbers[actual.key] >= search.expanded:
            return
        state = search.numbers[actual.key]


def _replay(search: Search, places: Sequence[int], *, drawn: bool, running: bool = False) -> int:
    """Replay actions from ``reset`` until the graph ends, and compare every step with it; return the steps taken.

    With the clock running, rewards may differ.
    """
    world, state, path = search.world, 0, list[Any]()
    first, _ = world.reset()
    if first != search.keys[0]:
        raise advised(
            f"two calls of reset with seed {world.seed} differ in {difference(search.keys[0], first)}, "
            "expected equal states",
            f"pass a seed that the environment obeys, or remove what is random from key; {IF_RANDOM}",
            "let reset set all attributes, by the seed alone, or use gym.key=observation if the observation shows the "
            f"full state; {IF_RANDOM}",
        )
    draws = drawn and getattr(world.env, "render_mode", None) is not None
    for place in search.legal(places):
        if draws:
            world.env.render()
        action = search.actions[place]
        actual, expected = world.act(world.env, action, lambda: path, running=running), search.outcome(state, place)
        if running:
            actual = actual._replace(reward=expected.reward)
        if _differ(expected, actual):
            first_path = plain(search.path_of(state))
            raise advised(
                f"the actions {first_path} and {plain(path)} lead to the same key {short(search.keys[state])}, but "
                f"then {plain(action)!r} gives {expected.shown}, and {actual.shown}{_apart(expected, actual)}; the "
                "environment is random, has state that key does not show, or does not come back to a state by "
                f"{world.how}",
                f"add that state to key, name counters of turns in clock, or use how='replay'; {IF_RANDOM}",
                "use gym.key=state, keep all state in attributes that a copy contains (a counter of turns may decide "
                f"rewards only), and draw random numbers in reset alone, from its seed; {IF_RANDOM}",
            )
        path.append(action)
        if actual.won or actual.ended or (running and world.truncated):
            break
        state = search.numbers[actual.key]
        if world.allowed != search.allowed[state]:
            raise CertifyError(
                f"the actions {plain(search.path_of(state))} and {plain(path)} lead to the same key "
                f"{short(search.keys[state])}, but info['action_mask'] allows other actions; let the mask depend on "
                "the state alone"
            )
        if state >= search.expanded:
            break  # beyond the limits of the search
    return len(path)
