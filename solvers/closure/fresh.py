"""Replay of walks in a new process, which shares no counters, caches or files in memory with the one that searched."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.admission import allowed_names, allowing
from ...core.errors import CertifyError
from .worlds import Env, Outcome, Reading, Replays

TIME_LIMIT = 600.0
"""Maximum time of the process, seconds."""
_RUN = "from pivot.solvers.closure.fresh import answer; answer()"


@dataclass(frozen=True)
class Question:
    """A level and the walks to replay, as data that can be sent to another process."""

    factory: Callable[[], Env]
    seed: int | None
    options: dict[str, Any] | None
    reading: Callable[[Env], Reading]
    walks: Sequence[Sequence[Any]]
    allowed: Sequence[str] = field(default_factory=allowed_names)
    """Names of modules that the new process may load."""

    def outcomes(self) -> list[list[Outcome]]:
        """Replay the walks; each ends with its episode."""
        env = self.factory()
        world = Replays(env, self.seed, self.options, self.reading(env))
        replayed: list[list[Outcome]] = []
        for walk in self.walks:
            world.reset()
            steps: list[Outcome] = []
            for action in walk:
                steps.append(world.act(env, action))
                if steps[-1].won or steps[-1].ended:
                    break
            replayed.append(steps)
        return replayed


def elsewhere(question: Question, seconds: float = TIME_LIMIT) -> list[list[Outcome]]:
    """Return the outcomes of the walks in a new process, which has some seconds, 60 in any case.

    Raises:
        CertifyError: the question cannot be sent, or the process ended with an error.
    """
    try:
        sent = pickle.dumps(sys.path) + pickle.dumps(question)
    except Exception as error:  # foreign objects
        raise CertifyError(
            f"fresh: found an environment or a function that cannot be sent to another process ({error}), expected "
            "functions and classes of a module; define them in a module, or pass fresh=False"
        ) from error
    limit = min(TIME_LIMIT, max(seconds, 60.0))
    try:
        run = subprocess.run(
            [sys.executable, "-c", _RUN],
            input=sent,
            capture_output=True,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired as error:
        raise CertifyError(
            f"fresh: the new process took longer than {limit:g} s; raise max_seconds, or lower checks"
        ) from error
    if run.returncode:
        last = run.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise CertifyError(f"fresh: the new process ended with {run.returncode}: {''.join(last)}")
    return pickle.loads(run.stdout)  # noqa: S301 - our own process wrote it


def answer() -> None:
    """Answer the question on standard input."""
    output, sys.stdout = sys.stdout, sys.stderr  # the environment may print
    sys.path[:] = pickle.load(sys.stdin.buffer)  # noqa: S301 - the caller, our own process, wrote both
    question: Question = pickle.load(sys.stdin.buffer)  # noqa: S301
    with allowing(question.allowed):
        outcomes = question.outcomes()
    output.buffer.write(pickle.dumps(outcomes))
    output.flush()
