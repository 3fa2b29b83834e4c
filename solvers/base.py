"""Interfaces of solvers and provers, and their results: pivot step, failure mode and certificate of a failed episode.

A solver reads state texts and has its own transition rules; it never imports an environment. The pivot step is the
first action after which the goal cannot be reached within the remaining turns (paper eq. 2):
``t* = min({t : Feas(s_{t+1}, T_max - 1 - t) = 0} or {T - 1})``.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from math import inf
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import ConfigDict

from ..core import plugins
from ..core.contracts import FINITE, Answer, Contract, JsonObject, Misfit, Misfits, Terms, Text
from ..core.errors import CertifyError, LevelError
from ..core.plugins import WORD, Plugin, Settings
from ..core.records import Stored

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
"""Failure modes of the five built-in environments. The order is public: it defines ``failure_mode_id`` in the dataset;
modes of other environments follow in alphabetical order."""

TURN_SEPARATOR = "|"
"""Joins the actions of a turn of several actions to its name, as in ``right|right|up``."""

CertificateKind = Literal["exact", "lower_bound", "heuristic", "convention"]
CertificateUnit = Literal["moves", "turns", "stages", "score"]


@dataclass(frozen=True, slots=True)
class Case:
    """Input of a solver: one episode as plain data."""

    initial_state: str
    actions: Sequence[str]
    """Normalised action names, one per step; an unusable reply has its environment's name, such as ``invalid``. A turn
    of several actions is one name, its actions joined with :data:`TURN_SEPARATOR`."""
    horizon: int
    """``T_max``, the turn budget."""
    steps: Sequence[Mapping[str, Any]] = ()
    """The logged ``info`` of each step, for solvers that read the log (navigation); exact solvers ignore it."""
    observations: Sequence[str] = ()
    """The text observation before each action, for solvers that read it (primitiveskill); may be empty."""
    actions_per_turn: int = 1
    """Most actions of a turn; a turn has one at least, and ends early at success or at the end of the episode."""
    states: Sequence[str] = ()
    """The state text before each action, for :meth:`Solver.measure` of solvers without rules; may be empty."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The facts behind ``(t*, m*)``; those of kind ``exact`` prove it. A number that does not apply is None."""

    kind: Annotated[CertificateKind, Stored("`exact`, `lower_bound`, `heuristic` or `convention`.")]
    unit: Annotated[CertificateUnit, Stored("Unit of `before` and `after`: `moves`, `turns`, `stages` or `score`.")]
    budget_before: Annotated[int, Stored("Turns left before the pivot action: T_max - t*.")]
    budget_after: Annotated[int, Stored("Turns left after it: T_max - 1 - t*.")]
    before: Annotated[
        float | None, FINITE, Stored("Needed amount before the pivot action; null if the goal is out of reach there.")
    ]
    after: Annotated[float | None, FINITE, Stored("Needed amount after it; null if the goal is out of reach there.")]
    reachable_after: Annotated[
        bool | None,
        Stored("Whether the goal can be reached at all after it: false for a deadlock; null if not applicable."),
    ]
    raw_before: Annotated[
        float | None,
        FINITE,
        Stored("Measured amount behind `before`, in metres, stages or score; null if there is none."),
    ] = None
    raw_after: Annotated[float | None, FINITE, Stored("The same after the action.")] = None
    reference_pivot: Annotated[
        int | None, Stored("Pivot step by a better reference, if there is one for an inexact certificate.")
    ] = None
    reference_kind: Annotated[
        str | None, Stored("Kind of that reference: `exact`, or `lower_bound` (no play takes fewer turns).")
    ] = None
    reference_before: Annotated[
        float | None,
        FINITE,
        Stored("Turns needed before the pivot action by that reference; null if out of reach there."),
    ] = None
    """In turns, even if ``unit`` is stages; None also without a better bound."""
    reference_after: Annotated[
        float | None, FINITE, Stored("Turns needed after it by that reference; null if out of reach there.")
    ] = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The solver's label of one failed episode."""

    pivot_step: int
    failure_mode: str
    certificate: Certificate
    secondary_modes: tuple[str, ...] = ()
    fallback: bool = False
    """Whether no action of the (truncated) episode was fatal, so that ``t* = T - 1`` by convention."""
    infeasible_at_start: bool = False
    witness: tuple[str, ...] | None = None
    """Plan that solves the task from ``s_{t*}`` in time: the shortest, then the first in the order of ``actions``."""
    feasible_actions: tuple[str, ...] = ()
    """All actions at ``s_{t*}`` after which the goal is still reachable in time. With turns of several actions: all
    such turns of one action, then the witness's first turn if it has several."""
    pivot_action: int | None = None
    """With turns of several actions, the index within the pivot turn of the first action after which the goal is out of
    reach in the actions that are left, counting the rest of the turn. None for turns of one action,
    where no action made it so (``fallback``, ``infeasible_at_start``), and where a turn lost the goal by the actions
    that it left out."""

    def _repr_html_(self) -> str:
        """Return the label as a table, for notebooks."""
        fact, start = self.certificate, " (out of reach from the start)" if self.infeasible_at_start else ""
        rows = {
            "pivot step": f"{self.pivot_step}{' (no action was fatal)' if self.fallback else start}",
            "failure": ", ".join([self.failure_mode, *self.secondary_modes]),
            f"needed {fact.unit} (None: too many)": f"{fact.before} of {fact.budget_before} before, {fact.after} after",
            "plan that still worked": " ".join(self.witness or ["none"]),
            "safe actions": " ".join(self.feasible_actions or ["none"]),
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>"


@dataclass(frozen=True, slots=True)
class Unsolved:
    """Reason why an episode has no label: the label is rejected with ``reason``, never guessed."""

    reason: Literal["solver_limit", "not_a_failure", "bad_episode"]
    detail: str


@dataclass(frozen=True, slots=True)
class Needs:
    """Needed amounts of every state of an episode, by the measure of the certificate, and the safe actions."""

    needs: Sequence[int | None]
    """Needed amount at ``s_0 .. s_T``, length T + 1; None where it is more than the horizon, or infinite."""
    safe_actions: Sequence[tuple[str, ...]]
    """Per turn the actions after which the goal is certainly within reach, in the order of the solver's actions; length
    T. With turns of several actions: all such turns of one action, then the first turn of the first shortest plan if
    it has several. Empty where the solver knows no action that is certainly safe."""


def unfit_modes(modes: Any) -> str | None:
    """Return why failure modes cannot be stored, or None; modes appear in a ClassLabel, in prompts and in targets."""
    if not isinstance(modes, tuple) or not modes:
        return f"its failure modes are {modes!r}, expected a tuple of at least one word"
    bad = [mode for mode in cast(tuple[Any, ...], modes) if not (isinstance(mode, str) and WORD.fullmatch(mode))]
    return f"its failure mode {bad[0]!r} is invalid; use lower-case letters, digits and underscores" if bad else None


def _verdict_misfits(solver: "Solver", answers: Sequence["Verdict | Unsolved"], cases: Sequence[Case]) -> Misfits:
    """Yield what the cases or the solver's own vocabulary do not allow in the answers of ``certify``."""
    if len(answers) != len(cases):
        yield Misfit("", answers, f"{len(cases)} answers, one per case")
        return
    for index, (case, answer) in enumerate(zip(cases, answers, strict=True)):
        if isinstance(answer, Unsolved):
            continue
        steps, at = len(case.actions), f"[{index}]"
        if not 0 <= answer.pivot_step < steps:
            yield Misfit(f"{at}.pivot_step", answer.pivot_step, f"0 to {steps - 1}")
        last = case.actions_per_turn - 1
        if answer.pivot_action is not None and not (last and 0 <= answer.pivot_action <= last):
            yield Misfit(f"{at}.pivot_action", answer.pivot_action, f"0 to {last}, or None" if last else "None")
        for name, modes in (("failure_mode", (answer.failure_mode,)), ("secondary_modes", answer.secondary_modes)):
            yield from _unknown_words(f"{at}.{name}", modes, solver.modes_of(case.initial_state))
        usable = solver.actions_of(case.initial_state)
        for name, actions in (("witness", answer.witness or ()), ("feasible_actions", answer.feasible_actions)):
            yield from _unknown_words(f"{at}.{name}", actions, usable)


def _unknown_words(field: str, words: Sequence[str], allowed: Sequence[str]) -> Misfits:
    """Yield the disallowed words; of an action such as ``pick(1,2)|push(3)`` the first word counts."""
    for word in words:
        if word not in allowed and re.split(r"[(|]", word)[0] not in allowed:
            yield Misfit(field, word, f"one of {', '.join(allowed)}")


class SolverSettings(Settings):
    """Settings of a solver, which affect labels but not episodes. Values of a wrong type are errors, not converted."""

    model_config = ConfigDict(strict=True)


class Solver(Plugin, ABC):
    """Solver of one environment: labels failed episodes."""

    name: ClassVar[str]
    version: ClassVar[str]
    modes: ClassVar[tuple[str, ...]]
    actions: ClassVar[tuple[str, ...]]
    """Usable action names; their order breaks ties between plans. Empty if they depend on the level, as
    :meth:`actions_of` then says."""
    kind: ClassVar[CertificateKind]
    """Kind of all certificates of this solver."""
    unit: ClassVar[CertificateUnit]
    """Unit of all certificates of this solver; those of turns of several actions count ``turns``."""
    labels_long_turns: ClassVar[bool] = False
    """Whether ``certify`` reads ``Case.actions_per_turn``."""
    terms: ClassVar[Terms] = Terms(
        attributes={
            "name": str,
            "version": str,
            "modes": tuple[str, ...],
            "actions": tuple[str, ...],
            "kind": CertificateKind,
            "unit": CertificateUnit,
        },
        answers={
            "certify": Answer(list[Verdict | Unsolved], _verdict_misfits),
            "read_level": Answer(Text),
            "read_action": Answer(Text),
            "read_distance": Answer(Text),
            "needed": Answer(Annotated[float | None, FINITE]),
            "needs": Answer(Sequence[Annotated[float | None, FINITE]] | None),
            "measure": Answer(list[Needs | Unsolved]),
            "config": Answer(JsonObject),
        },
    )

    @classmethod
    def misfit(cls) -> str | None:
        """Return why the dataset cannot store labels of this class, or None; see the base class."""
        if unset := [name for name in Solver.terms.attributes if not hasattr(cls, name)]:
            return f"it does not set {', '.join(unset)}"
        return super().misfit() or unfit_modes(getattr(cls, "modes", None))

    @classmethod
    def refusal(cls, settings: Settings, environment: Mapping[str, Any]) -> str | None:
        """Return why these settings cannot label an environment with its settings, and what to do; None if they can."""
        del settings, environment
        return None

    @classmethod
    def actions_of(cls, initial_state: str) -> tuple[str, ...]:
        """Return the usable actions of a level, in the order that breaks ties; by default those of the class.

        Raises:
            LevelError: the text is not a level.
        """
        del initial_state
        return cls.actions

    @classmethod
    def modes_of(cls, initial_state: str) -> tuple[str, ...]:
        """Return the failure modes of a level; by default those of the class."""
        del initial_state
        return cls.modes

    @abstractmethod
    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label ``cases``, in order; an invalid episode gives :class:`Unsolved`, never an exception."""

    # Other notations of users: used by `pivot.certify`, never in a build.

    @classmethod
    def read_level(cls, text: str) -> str:
        """Return a level in PIVOT's state format; a text in an unknown notation is returned unchanged."""
        return text

    @classmethod
    def read_action(cls, text: str) -> str:
        """Return an action in the notation of logs; case-insensitive.

        Raises:
            CertifyError: the text consists of several actions, but a turn has one.
        """
        word = "".join(text.split()).casefold()
        parts = [part for part in re.split(r"[|,;]+", word) if part]
        if not cls.actions:
            return text
        if len(parts) > 1 and all(part in cls.actions for part in parts):
            raise CertifyError(
                f"actions: found {len(parts)} actions in the turn {text!r}, expected one; if a turn of {cls.name} may "
                "have several, pass actions_per_turn"
            )
        return text if text in cls.actions else word

    @classmethod
    def read_distance(cls, metres: float) -> str:
        """Return a level for which only the distance to the goal is known.

        Raises:
            CertifyError: the solver needs the level itself.
        """
        del metres
        raise CertifyError(f"distances: the solver of {cls.name} needs the level; give initial_state")

    def needed(self, raw: float) -> float | None:
        """Convert a measured amount to the unit of the certificate; None if they are not comparable.

        Displayed distances are rounded such that they need as many turns as the certificate says.
        """
        del raw
        return None

    def needs(self, case: Case) -> Sequence[float | None] | None:
        """Return the needed amount at ``s_0 .. s_T`` by the measure of the certificate, read from the log.

        Used to display an episode, including a successful one; exact solvers return the distance of each state instead.
        None if the measure cannot be compared with the turns left, or is not in the log.
        """
        del case
        return None

    def measure(self, cases: Sequence[Case]) -> list[Needs | Unsolved]:
        """Return what success takes from every state of each case, successful episodes included, in order.

        By default that of :meth:`needs`, without safe actions; an invalid episode gives :class:`Unsolved`.

        Raises:
            CertifyError: the certificate of this solver has no measure that compares with the turns left.
        """
        return [self._read_needs(case) for case in cases]

    def _read_needs(self, case: Case) -> "Needs | Unsolved":
        needs = self.needs(case)
        if needs is None:
            return Unsolved(
                "bad_episode", "the log does not hold what the solver measures; pass the info of every step"
            )
        within = [round(need) if need is not None and need <= case.horizon else None for need in needs]
        return Needs(within, [()] * len(case.actions))

    @property
    def config(self) -> dict[str, Any]:
        """Settings that affect the verdicts, as stored with every label."""
        return self.settings.model_dump(mode="json")


class DistanceMap(Contract, ABC):
    """Exact distances of one level, in the unit of its solver's certificates, for generators and scripted policies."""

    terms: ClassVar[Terms] = Terms(
        answers={"distance": Answer(int | None), "after_each_action": Answer(tuple[int | None, ...])}
    )

    @abstractmethod
    def distance(self, state_text: str) -> int | None:
        """Return the fewest actions from the state to success, or None if it is unreachable (within the depth limit).

        Raises:
            LevelError: the text is not a state of this level.
        """

    @abstractmethod
    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        """Return the distance after each of the solver's actions in the level, in their order.

        Raises:
            LevelError: the text is not a state of this level.
        """


class ExactSolver(Solver):
    """Solver that gives exact distances of all states of a level."""

    terms: ClassVar[Terms] = Terms(answers={"distance_map": Answer(DistanceMap)})

    @abstractmethod
    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> DistanceMap:
        """Search the level of ``initial_state``, up to ``depth_limit`` actions from success (None for no limit).

        Raises:
            LevelError: the text is not a well-formed level.
            CertifyError: the level has more states than the solver's cap allows.
        """

    def _read_needs(self, case: Case) -> Needs | Unsolved:
        """Measure an episode by its state texts; a solver with rules of its own overrides :meth:`measure` instead."""
        if len(case.states) != len(case.actions) or case.actions_per_turn > 1:
            return Unsolved("bad_episode", "this solver measures the states of a log; pass states, one text per action")
        try:
            distances, actions = (
                self.distance_map(case.initial_state, case.horizon),
                self.actions_of(case.initial_state),
            )
            needs = [distances.distance(state) for state in case.states]
            after = [distances.after_each_action(state) for state in case.states]
        except LevelError as error:
            return Unsolved("bad_episode", str(error))
        except CertifyError as error:
            return Unsolved("solver_limit", str(error))
        ends = dict(zip(actions, after[-1], strict=True)) if after else {}
        needs.append(ends.get(case.actions[-1], needs[-1]) if needs else None)
        left = [case.horizon - 1 - turn for turn in range(len(after))]
        return Needs(
            [need if need is not None and need <= case.horizon else None for need in needs],
            [
                tuple(name for name, need in zip(actions, row, strict=True) if need is not None and need <= turns)
                for row, turns in zip(after, left, strict=True)
            ],
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """Outcome of an independent re-check of a verdict (``pivot verify``)."""

    problems: tuple[str, ...] = field(default=())
    undecided: str | None = None
    """Why the label is neither proved nor refuted, such as a level that is too large to search again."""

    @property
    def holds(self) -> bool:
        """Whether the label was proved."""
        return not self.problems and self.undecided is None


class Prover(Plugin, ABC):
    """Prover of one environment: re-proves labels from stored rows only.

    A prover shares no code with the solver, because an error in shared code would stay undetected. Labels of an
    environment without a prover are counted as unproved.
    """

    terms: ClassVar[Terms] = Terms(arguments=2, answers={"prove": Answer(Proof), "quick": Answer(Settings)})

    def __init__(self, solver_config: Mapping[str, Any] | None = None, settings: Settings | None = None) -> None:
        """Create a prover for labels made with the solver settings ``solver_config``, or with the default settings."""
        super().__init__(settings)
        self.solver_config = dict(solver_config or {})

    @classmethod
    def quick(cls) -> Settings:
        """Return the prover settings for use while labels are made; ``pivot verify`` uses the defaults."""
        return cls.config_type()

    @abstractmethod
    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or all its errors; an invalid row never raises."""


def differences(label: Verdict, right: Verdict) -> tuple[str, ...]:
    """Return a problem for each field of a label, or of its certificate, that differs from the prover's value."""
    values = [
        (each.name, getattr(one, each.name), getattr(other, each.name))
        for one, other in ((label, right), (label.certificate, right.certificate))
        for each in fields(one)
        if each.name != "certificate"
    ]
    return tuple(
        f"{name} is {stored!r}, the prover gives {'more' if expected == inf else repr(expected)}"
        for name, stored, expected in values
        if (tuple(cast(list[Any], stored)) if isinstance(stored, list) else stored) != expected
    )


def prover_of(env: str, solver_config: Mapping[str, Any] | None = None, *, quick: bool = False) -> Prover | None:
    """Return the prover of an environment; None if there is none.

    With ``quick``, it leaves labels undecided whose proof would slow down labelling.

    Raises:
        PluginError: the prover cannot be used.
    """
    if env not in plugins.names("provers"):
        return None
    kind: type[Prover] = plugins.load("provers", env)
    return kind(solver_config, kind.quick() if quick else None)


def prove(env: str, case: Case, verdict: Verdict, solver_config: Mapping[str, Any] | None = None) -> Proof:
    """Re-prove one label; use :func:`prover_of` for many of them.

    Raises:
        CertifyError: the environment has no prover.
    """
    prover = prover_of(env, solver_config)
    if prover is None:
        names = ", ".join(plugins.names("provers"))
        raise CertifyError(f"environment {env!r} has no prover; provers: {names}")
    return prover.prove(case, verdict)
