"""What a solver proves about a failed episode: the pivot step, the failure mode and the certificate behind them.

A solver knows plain state texts and has its own transition rules; it never imports an environment. The pivot step is
the first action after which the goal cannot be reached within the remaining turns (spec section 1, paper eq. 2):
``t* = min({t : Feas(s_{t+1}, T_max - 1 - t) = 0} or {T - 1})``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal

from ..records import Stored

FAILURE_MODES = (
    "timeout",
    "deadlock",
    "format",
    "blocked",
    "stagnation",
    "budget",
    "wrong_target",
    "order_error",
    "regression",
    "mismatch",
)
"""Every failure mode of the five environments. The order is public: it defines ``failure_mode_id`` in the dataset."""

CertificateKind = Literal["exact", "lower_bound", "heuristic", "convention", "estimated"]
CertificateUnit = Literal["moves", "turns", "stages", "score"]


@dataclass(frozen=True, slots=True)
class Case:
    """One episode as a solver sees it: plain data, nothing of the environment."""

    initial_state: str
    actions: Sequence[str]
    """Normalised action names, one a step; an unusable reply is its environment's own word, such as ``invalid``."""
    horizon: int
    """``T_max``, the turn budget."""
    steps: Sequence[Mapping[str, Any]] = ()
    """The logged ``info`` of each step, for solvers that read the log (navigation); exact solvers ignore it."""
    observations: Sequence[str] = ()
    """The text observation before each action, for solvers that read it (primitiveskill); empty where none is known."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The facts that prove ``(t*, m*)`` (spec section 3). ``None`` stands where a number makes no sense."""

    kind: Annotated[CertificateKind, Stored("`exact`, `lower_bound`, `heuristic`, `convention` or `estimated`.")]
    unit: Annotated[CertificateUnit, Stored("Unit of `before` and `after`: `moves`, `turns`, `stages` or `score`.")]
    budget_before: Annotated[int, Stored("Turns left before the pivot action: T_max - t*.")]
    budget_after: Annotated[int, Stored("Turns left after it: T_max - 1 - t*.")]
    before: Annotated[
        float | None,
        Stored("Needed amount before the pivot action; null when the goal is out of reach there."),
    ]
    after: Annotated[float | None, Stored("Needed amount after it; null when the goal is out of reach from there.")]
    reachable_after: Annotated[bool | None, Stored("False for a deadlock; null where it makes no sense.")]
    raw_before: Annotated[
        float | None, Stored("Measured amount behind `before` (metres, stages, score), where there is one.")
    ] = None
    raw_after: Annotated[float | None, Stored("The same after the action.")] = None
    reference_pivot: Annotated[
        int | None, Stored("Pivot step by a better reference, where one exists beside an inexact certificate.")
    ] = None
    reference_kind: Annotated[
        str | None, Stored("Which reference that is: `exact`, or `lower_bound` (no play takes fewer).")
    ] = None
    reference_before: Annotated[
        float | None,
        Stored("Turns needed before the pivot action by that reference; null when out of reach there."),
    ] = None
    """In turns also where ``unit`` counts stages; None without a reference, too."""
    reference_after: Annotated[
        float | None, Stored("Turns needed after it by that reference; null when out of reach from there.")
    ] = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The solver's label of one failed episode."""

    pivot_step: int
    failure_mode: str
    certificate: Certificate
    secondary_modes: tuple[str, ...] = ()
    fallback: bool = False
    """True when no action of the (truncated) episode was fatal and ``t* = T - 1`` by convention."""
    infeasible_at_start: bool = False
    witness: tuple[str, ...] | None = None
    """The plan that still solved the task from ``s_{t*}``: shortest, then first in the order of ``actions``."""
    feasible_actions: tuple[str, ...] = ()
    """All actions at ``s_{t*}`` after which the goal was still reachable in time."""


@dataclass(frozen=True, slots=True)
class Unsolved:
    """A typed 'no answer': the label is rejected with ``reason``, never guessed."""

    reason: Literal["solver_limit", "not_a_failure", "bad_episode"]
    detail: str


@dataclass(frozen=True)
class Solver(ABC):
    """Certifies failed episodes of one environment. Subclasses are dataclasses whose fields are their settings."""

    name: ClassVar[str]
    version: ClassVar[str]
    modes: ClassVar[tuple[str, ...]]
    actions: ClassVar[tuple[str, ...]]
    """Usable action names in the public order; ties between plans are broken by it."""

    @abstractmethod
    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label ``cases``, in order. Never raises for a bad episode: it answers :class:`Unsolved`."""

    @property
    def config(self) -> dict[str, Any]:
        """The settings that decide the verdicts, as stored beside every label."""
        names = (item.name for item in fields(self))
        return {name: getattr(self, name) for name in names if not name.startswith("_")}


class DistanceMap(ABC):
    """The exact distances of one level, in the unit of its solver's certificates, for generators and policies."""

    @abstractmethod
    def distance(self, state_text: str) -> int | None:
        """Return the fewest actions from the state to success, or None when it is out of reach (or of the depth limit).

        Raises:
            LevelError: the text is not a state of this level.
        """

    @abstractmethod
    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        """Return the distance after each of the solver's ``actions``, in their order.

        Raises:
            LevelError: the text is not a state of this level.
        """


class ExactSolver(Solver):
    """A solver whose distances are exact and can be asked for any state of a level."""

    @abstractmethod
    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> DistanceMap:
        """Search the level of ``initial_state``, only up to ``depth_limit`` actions from success when it is given.

        Raises:
            LevelError: the text is not a well-formed level.
            CertifyError: the level has more states than the solver's cap allows.
        """


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of an independent re-check of a verdict (``verify``)."""

    problems: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether no problem was found."""
        return not self.problems
