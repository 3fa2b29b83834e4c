"""What a solver proves about a failed episode: the pivot step, the failure mode and the certificate behind them.

A solver knows plain state texts and has its own transition rules; it never imports an environment. The pivot step is
the first action after which the goal cannot be reached within the remaining turns (spec section 1, paper eq. 2):
``t* = min({t : Feas(s_{t+1}, T_max - 1 - t) = 0} or {T - 1})``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from pydantic import ConfigDict

from ..plugins import WORD, Plugin, Settings
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
"""Every failure mode of the five environments. The order is public: it defines ``failure_mode_id`` in the dataset, and
those of other environments follow it, sorted."""

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


def unfit_modes(modes: Any) -> str | None:
    """Say why failure modes cannot be stored, or None: a mode is a word of a ClassLabel, a prompt and a target."""
    if not isinstance(modes, tuple) or not modes:
        return f"its failure modes are {modes!r}, expected a tuple of at least one word"
    bad = [mode for mode in cast(tuple[Any, ...], modes) if not (isinstance(mode, str) and WORD.fullmatch(mode))]
    return f"its failure mode {bad[0]!r} is no word; use lower-case letters, digits and underscores" if bad else None


class SolverSettings(Settings):
    """Settings of a solver: they decide labels, never episodes. A value of another type is refused, not converted."""

    model_config = ConfigDict(strict=True)


class Solver(Plugin, ABC):
    """Certifies failed episodes of one environment."""

    name: ClassVar[str]
    version: ClassVar[str]
    modes: ClassVar[tuple[str, ...]]
    actions: ClassVar[tuple[str, ...]]
    """Usable action names in the public order; ties between plans are broken by it."""
    kind: ClassVar[CertificateKind]
    """The kind of all its certificates."""
    unit: ClassVar[CertificateUnit]
    """The unit of all its certificates."""

    @classmethod
    def misfit(cls) -> str | None:
        """Say what of the class the dataset could not store; see the base class."""
        for name, allowed in (("kind", get_args(CertificateKind)), ("unit", get_args(CertificateUnit))):
            if getattr(cls, name, None) not in allowed:
                return f"its {name} is {getattr(cls, name, None)!r}, expected one of {', '.join(allowed)}"
        return super().misfit() or unfit_modes(getattr(cls, "modes", None))

    @abstractmethod
    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label ``cases``, in order. Never raises for a bad episode: it answers :class:`Unsolved`."""

    def needed(self, raw: float) -> float | None:
        """Return what a measured amount takes, in the unit of the certificate; None where the measure decides nothing.

        A rounded distance that is shown to people has to take as many turns as the certificate says.
        """
        del raw
        return None

    def needs(self, case: Case) -> Sequence[float | None] | None:
        """Return the needed amount at ``s_0 .. s_T`` by the measure of the certificate, read from the log.

        For people who look at an episode, a success too. An exact solver is asked for the distance of each state
        instead; None where the measure is no amount that could be held against the turns left, or the log has none.
        """
        del case
        return None

    @property
    def config(self) -> dict[str, Any]:
        """The settings that decide the verdicts, as stored beside every label."""
        return self.settings.model_dump(mode="json")


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
    undecided: str | None = None
    """Why nothing could be proved, such as a level that is too large to be searched a second time."""

    @property
    def holds(self) -> bool:
        """Whether the label was proved."""
        return not self.problems and self.undecided is None


class Prover(Plugin, ABC):
    """Proves the labels of one environment a second time, from stored rows alone.

    A prover shares no code with the solver: what both get wrong nobody finds. Labels of an environment without one are
    counted as unproved wherever labels are counted.
    """

    def __init__(self, solver_config: Mapping[str, Any] | None = None, settings: Settings | None = None) -> None:
        """Prepare for labels that were made with the solver settings ``solver_config``; its defaults without."""
        super().__init__(settings)
        self.solver_config = dict(solver_config or {})

    @classmethod
    def quick(cls) -> Settings:
        """Return the settings under which a label is proved while it is made; ``verify`` takes the defaults."""
        return cls.config_type()

    @abstractmethod
    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or everything that is wrong with it. Never raises for a bad row."""
