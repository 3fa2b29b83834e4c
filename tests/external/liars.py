"""Two plugins that lie, for `test_external.py`: every pivot at step 0 under an ``exact`` certificate.

``liar`` is registered with a prover, ``hearsay`` without one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pivot.plugin import Case, EnvProfile, Unsolved, Verdict
from pivot_corridor.environment import CorridorEnv
from pivot_corridor.solver import CorridorSolver


class LyingSolver(CorridorSolver):
    """Blames the first step, with numbers that fit together."""

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label ``cases``, in order."""
        return [self._blame(case, answer) for case, answer in zip(cases, super().certify(cases), strict=True)]

    @staticmethod
    def _blame(case: Case, answer: Verdict | Unsolved) -> Verdict | Unsolved:
        if isinstance(answer, Unsolved):
            return answer
        facts = replace(answer.certificate, budget_before=case.horizon, budget_after=case.horizon - 1)
        return replace(answer, pivot_step=0, certificate=facts)


class LiarEnv(CorridorEnv):
    """The corridor under another name."""

    profile: ClassVar[EnvProfile] = replace(CorridorEnv.profile, name="liar")


class HearsayEnv(CorridorEnv):
    """The corridor under a third name."""

    profile: ClassVar[EnvProfile] = replace(CorridorEnv.profile, name="hearsay")
