"""The contract of a prover, held against the solver: right labels hold, and every altered field is found."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, get_args

from ..solvers.base import Case, Certificate, CertificateKind, CertificateUnit, Prover, Verdict
from .episodes import Labels, bad_cases


def altered(
    verdict: Verdict, case: Case, modes: Sequence[str], actions: Sequence[str]
) -> Iterator[tuple[str, Verdict]]:
    """Yield wrong verdicts, each with the description of its error: single changed fields, and one consistent lie.

    Args:
        verdict: a right one.
        case: its episode.
        modes: the solver's failure modes.
        actions: the solver's actions.
    """
    facts, pivot, last = verdict.certificate, verdict.pivot_step, len(case.actions) - 1
    for step in sorted({pivot - 1, pivot + 1, 0, last, -1, last + 1} - {pivot}):
        yield f"pivot_step {step}", replace(verdict, pivot_step=step)
    if pivot:
        budgets = replace(facts, budget_before=case.horizon, budget_after=case.horizon - 1)
        yield "a lie: all is lost at step 0", replace(verdict, pivot_step=0, certificate=budgets)
    for mode in {*modes, "no_such_mode"} - {verdict.failure_mode}:
        yield f"failure_mode {mode}", replace(verdict, failure_mode=mode)
    yield "secondary_modes", replace(verdict, secondary_modes=(*verdict.secondary_modes, modes[0]))
    yield "fallback", replace(verdict, fallback=not verdict.fallback)
    yield "infeasible_at_start", replace(verdict, infeasible_at_start=not verdict.infeasible_at_start)
    yield "pivot_action", replace(verdict, pivot_action=(verdict.pivot_action or 0) + 1)
    for action in actions:
        others = tuple(each for each in actions if (each in verdict.feasible_actions) != (each == action))
        yield f"feasible_actions {action}", replace(verdict, feasible_actions=others)
    if len(verdict.feasible_actions) > 1:
        yield "feasible_actions reversed", replace(verdict, feasible_actions=verdict.feasible_actions[::-1])
    for name, witness in _witnesses(verdict.witness, actions):
        yield f"witness {name}", replace(verdict, witness=witness)
    for column in fields(Certificate):
        for value in _others(column.name, getattr(facts, column.name)):
            changed = replace(facts, **{column.name: value})
            yield f"certificate.{column.name} {value!r}", replace(verdict, certificate=changed)


def _witnesses(witness: tuple[str, ...] | None, actions: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    if witness is None:
        yield "made up", tuple(actions[:1])
    elif witness:
        yield "missing", None
        yield "cut", witness[:-1]
        yield "without its first action", witness[1:]
        yield "longer", (*witness, witness[-1])
        for at, old in enumerate(witness):
            for other in {*actions, "no_such_action"} - {old}:
                yield f"with {other} at {at}", (*witness[:at], other, *witness[at + 1 :])


def _others(name: str, value: Any) -> list[Any]:
    words = {"kind": get_args(CertificateKind), "unit": get_args(CertificateUnit), "reference_kind": ("exact", None)}
    if name in words:
        return [other for other in words[name] if other != value]
    if name == "reachable_after":
        return [other for other in (True, False, None) if other is not value]
    if value is None:
        return [1]
    near = [value + 1e-6] if isinstance(value, float) else []
    return [value + 1, value - 1, *near, *([] if name.startswith("budget") else [None])]


class ProverContract(Labels):
    """Set the class attributes and inherit."""

    prover_type: ClassVar[type[Prover]]
    unread: ClassVar[frozenset[str]] = frozenset()
    """Fields that may be altered, such as ``witness`` of a prover that accepts any plan in time."""

    def prover(self) -> Prover:
        """Make the prover for the solver's settings."""
        return self.prover_type(self.solver().config)

    def test_right_labels_hold(self) -> None:
        prover = self.prover()
        for failure, verdict in self.labelled():
            assert prover.prove(failure.episode.case(), verdict).holds, f"a right label was refuted: {verdict}"

    def test_every_altered_field_is_found(self) -> None:
        prover, solver = self.prover(), self.solver_type
        for failure, verdict in self.labelled():
            case = failure.episode.case()
            for name, wrong in altered(verdict, case, solver.modes, solver.actions):
                if name.split(" ")[0] not in self.unread:
                    assert prover.prove(case, wrong).problems, f"{name} of {verdict} was not found"

    def test_a_bad_row_is_a_problem_and_no_error(self) -> None:
        prover = self.prover()
        for failure, verdict in self.labelled()[:4]:
            case = failure.episode.case()
            for each in bad_cases(failure):
                assert prover.prove(each, verdict).problems, f"a bad row was proved: {each}"
            prover.prove(replace(case, initial_state="\x00 no level"), verdict)
            prover.prove(replace(case, steps=()), verdict)
