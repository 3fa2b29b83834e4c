"""Walks in a new process, which shares no counters, caches, memory files or text hashes with the searching one.

What a notebook or ``__main__`` defines travels as code (cloudpickle); everything else is imported there again.
"""

import builtins
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time
from functools import partial
from typing import Any, cast

import cloudpickle
import gymnasium

from ...core.admission import allowed_names, allowing
from ...core.errors import CertifyError
from .advice import AdvisedError, plain
from .checks import apart, differ
from .search import Search
from .state import bare
from .worlds import Env, Outcome, Reading, Replays

TIME_LIMIT = 600.0
"""Maximum time of a process, seconds."""
HASHES = 6
"""Number of times that walks are played, with other hashes and ids, if the environment's code calls either."""
_RUN = "from pivot.solvers.closure.fresh import answer; answer()"


def packed(make: Callable[[], Env], kinds: Iterable[type]) -> bytes | None:
    """Return a function that makes an environment as bytes for a new process; None if it cannot be sent.

    Args:
        make: the function.
        kinds: classes of the environment and its wrappers; classes that no process can import are sent as code.
    """
    names = {each.__module__ for each in (make, *(each for kind in kinds for each in kind.__mro__))}
    unknown = [sys.modules[name] for name in names if name in sys.modules and not _is_importable(name)]
    for module in unknown:
        cloudpickle.register_pickle_by_value(module)
    specs = {name: spec for name, spec in gymnasium.registry.items() if callable(spec.entry_point)}
    try:
        return cloudpickle.dumps((specs, make))
    except Exception:  # noqa: BLE001 - foreign objects
        return None
    finally:
        for module in unknown:
            cloudpickle.unregister_pickle_by_value(module)


def _is_importable(module: str) -> bool:
    first = module.partition(".")[0]
    return first == "__main__" or any(finder.find_spec(first, None) for finder in sys.meta_path)


def draw_once(env: Env, seed: int | None, options: dict[str, Any] | None) -> None:
    """Draw a picture, so that everything that drawing caches exists before the first key."""
    if getattr(env, "render_mode", None) == "rgb_array":
        with suppress(Exception):  # foreign code may raise anything
            env.reset(seed=seed, options=options)
            env.render()


@dataclass(frozen=True)
class Question:
    """A level and the walks to replay, as data that can be sent to another process."""

    factory: bytes
    """Function that makes the environment, from :func:`packed`."""
    observed: bool
    """Whether the observation is the key."""
    is_made: bool
    """Whether the function makes a new environment, whose keys are then equal in all processes."""
    seed: int | None
    options: dict[str, Any] | None
    reading: Callable[[Env], Reading]
    walks: Sequence[Sequence[Any]]
    times: int
    """Number of times that all walks are played, each with a different hash seed."""
    allowed: Sequence[str] = field(default_factory=allowed_names)
    """Names of modules that the new process may load."""

    def outcomes(self) -> list[list[Outcome]]:
        """Replay the walks; each ends with its episode. The first outcome is that of ``reset``."""
        specs, factory = cloudpickle.loads(self.factory)
        gymnasium.registry.update(specs)
        env = bare(factory(), observed=self.observed)
        if self.is_made:
            draw_once(env, self.seed, self.options)
        world = Replays(env, self.seed, self.options, self.reading(env))
        replayed: list[list[Outcome]] = []
        for walk in self.walks:
            steps = [Outcome(world.reset()[0], 0.0, False, False)]
            for action in walk:
                steps.append(world.act(env, action))
                if steps[-1].won or steps[-1].ended:
                    break
            replayed.append(steps)
        return replayed


def compare(search: Search, walks: Sequence[Sequence[int]], question: Question, seconds: float) -> None:
    """Compare walks in a new process, which has its own hash seed, with the graph.

    Args:
        search: the search with the graph.
        walks: numbers of the actions of each walk.
        question: the same walks.
        seconds: time of the process, 60 in any case.

    Raises:
        CertifyError: a walk differs, the process ended with an error, or the question cannot be sent.
    """
    try:
        message = pickle.dumps(sys.path) + cloudpickle.dumps(question)
    except Exception as error:  # foreign objects
        raise CertifyError(
            f"fresh: found a function that cannot be sent to another process ({error}), expected functions and classes "
            "of a module; define them in a module, or pass fresh=False"
        ) from error
    limit = min(TIME_LIMIT, max(seconds, 60.0))
    number = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    try:
        run = subprocess.run(
            [sys.executable, "-c", _RUN],
            input=message,
            capture_output=True,
            check=False,
            timeout=limit,
            env=os.environ | {"PYTHONHASHSEED": number},
        )
    except subprocess.TimeoutExpired as error:
        raise CertifyError(
            f"fresh: the new process took longer than {limit:g} s; raise max_seconds, or lower checks"
        ) from error
    if run.returncode:
        last = run.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise CertifyError(
            f"fresh: the new process ended with {run.returncode}: {''.join(last)}; expected the environment to work in "
            "every process; define what it needs in a module, or pass fresh=False"
        )
    for outcomes in pickle.loads(run.stdout):  # noqa: S301 - our own process wrote it
        for walk, played in zip(walks, outcomes, strict=True):
            _compare(search, walk, played, is_made=question.is_made)


def _compare(search: Search, places: Sequence[int], outcomes: Sequence[Outcome], *, is_made: bool) -> None:
    """Compare a walk; keys of an environment that was sent unchanged may differ in transit, as those of array views."""
    start = Outcome(search.keys[0], 0.0, False, False)
    has_keys, state = is_made or start == outcomes[0], 0
    for step, (place, actual) in enumerate(zip((-1, *places), outcomes, strict=False)):
        expected = start if place < 0 else search.outcome(state, place)
        if differ(expected, actual) if has_keys else expected[1:] != actual[1:]:
            path = [plain(search.actions[each]) for each in places[:step]]
            raise AdvisedError(
                f"the actions {path} lead to {expected.shown} in this process, and to {actual.shown} in a new one"
                f"{apart(expected, actual)}; the environment depends on what is outside of it, such as a global "
                "variable, a file, the time, or hash() and sets of texts, or id(), which differ in every process; let "
                "reset make all of it from the seed; or name attributes that decide nothing in gym.drawing"
            )
        if place >= 0:
            state = search.targets[state * len(search.actions) + place]
        if not 0 <= state < search.expanded:
            return


def answer() -> None:
    """Answer the question on standard input."""
    output, sys.stdout = sys.stdout, sys.stderr  # the environment may print
    sys.path[:] = pickle.load(sys.stdin.buffer)  # noqa: S301 - the caller, our own process, wrote both
    question: Question = pickle.load(sys.stdin.buffer)  # noqa: S301
    outcomes: list[list[list[Outcome]]] = []
    with allowing(question.allowed):
        for number in range(question.times):
            builtins.hash = partial(_hash, number) if number else _HASH  # in this process alone
            builtins.id = partial(_id, number) if number else _ID
            outcomes.append(question.outcomes())
    output.buffer.write(pickle.dumps(outcomes))
    output.flush()


_HASH, _ID = hash, id


def _id(number: int, value: Any) -> int:
    """Return the id of a value in process ``number``: objects are elsewhere in every process."""
    return _ID(value) + 16 * 1_000_003 * number


def _hash(number: int, value: Any) -> int:
    """Return the hash of a value in process ``number``: hashes of texts differ between processes."""
    return _HASH(f"{number} {_HASH(value)}") if _varies(value) else _HASH(value)


def _varies(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return any(map(_varies, cast(Iterable[Any], value)))
    return isinstance(value, str | bytes | date | time) and bool(value)
