"""Prover of SVG labels: checks every field of a verdict against the log, in decimal arithmetic.

It is independent of the solver. The two floats are expanded to all their decimals and subtracted exactly; the
difference is rounded to nine decimals (half to even) before it is compared with 0.01.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import ClassVar

from ...core.plugins import Settings
from ..base import Case, Certificate, Proof, Prover, Verdict, differences

_HUNDREDTH = Decimal("0.01")
_NINE_PLACES = Decimal("1E-9")
_EXACT = Context(prec=2500, rounding=ROUND_HALF_EVEN)
"""Precision in digits; a double below 1 has at most 1074 decimals."""


class SvgProver(Prover):
    """Prover of SVG labels, from the log."""

    config_type: ClassVar[type[Settings]] = Settings

    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or all its errors."""
        turns = list(zip(case.actions, case.steps, strict=False))
        if not turns or len(turns) != len(case.actions) or len(case.steps) > len(turns) or len(turns) > case.horizon:
            return Proof(
                (f"not an episode: {len(case.actions)} actions, {len(case.steps)} logged, {case.horizon} turns",)
            )
        try:
            valid = [bool(info["valid_svg"]) and action == "svg" for action, info in turns]
            scores = [Decimal(info["average_score"]) for _, info in turns]
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            return Proof((f"the log cannot be read: {type(error).__name__}: {error}",))
        wrong = [
            f"step {t} is logged with score {score}, which its submission cannot have"
            for t, (good, score) in enumerate(zip(valid, scores, strict=True))
            if not score.is_finite() or not 0 <= score <= 1 or (score > 0 and not good)
        ]
        if wrong:
            return Proof(tuple(wrong))
        if scores[-1] == 1:
            return Proof(("not a failed episode: the last submission has the full score",))
        return Proof(_differences(verdict, case.horizon, valid, scores))


def _differences(verdict: Verdict, horizon: int, valid: list[bool], scores: list[Decimal]) -> tuple[str, ...]:
    last = len(scores) - 1
    before = scores[-2] if last else None
    certificate = Certificate(
        "convention",
        "score",
        horizon - last,
        horizon - last - 1,
        None,
        None,
        None,
        None if before is None else float(before),
        float(scores[-1]),
    )
    return differences(verdict, Verdict(last, _mode(valid[-1], before, scores[-1]), certificate))


def _mode(valid: bool, before: Decimal | None, after: Decimal) -> str:
    if not valid:
        return "format"
    if before is None:
        return "mismatch"
    gain = _EXACT.quantize(_EXACT.subtract(after, before), _NINE_PLACES)
    if abs(gain) <= _HUNDREDTH:
        return "stagnation"
    return "mismatch" if gain > 0 else "regression"
