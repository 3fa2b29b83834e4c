"""Search for the latest step from which retries of a failure succeed.

A retry from step t that reaches the goal within the turns left proves that the state before step t was not lost, so
t* >= t. So does one from an earlier step that comes through the failure's state before step t, at that step or later.
Failures prove nothing: 0 successes of n retries bound the chance of the policy that made them by 3/n (the rule of
three, at 95 %), and say nothing about other policies. No probability of a step is reported: how often a policy succeeds
from a step that is not lost is unknown, so that none can be identified.

The search is a bisection with noise: every open step has a weight, a failure from a step lowers the weights of that
step and of all later ones, and the next retry begins at the step that has half of the weight above it. The weights
decide where to look, and nothing else.
"""

import math
from dataclasses import dataclass, field

RULE_OF_THREE = 3.0
"""-ln(0.05), rounded up: with a chance above 3/n, n failures in a row have a probability below 5 %."""


@dataclass(slots=True)
class Bisection:
    """Search over the steps 1 to ``last`` of one failure; step 0 needs no retry, because t* >= 0."""

    last: int
    """Last step of the episode, T - 1: no pivot is later."""
    retries: int
    """Retries after which a step without a success counts less: the weights assume a chance of 1 / ``retries``."""
    budget: int
    """Most retries in all."""
    proven: int = 0
    """Latest step that is proven not to be lost before it: t* is at least this."""
    failures: dict[int, int] = field(default_factory=dict[int, int])
    """Failed retries by step."""
    played: int = 0

    def next_step(self) -> int | None:
        """Return the step of the next retry; None when the search is over."""
        if self.played >= self.budget or self.proven >= self.last:
            return None
        loss = math.log1p(-min(0.5, 1 / self.retries))
        weights, exponent = [1.0], 0.0
        for step in range(self.proven + 1, self.last + 1):
            exponent += loss * self.failures.get(step, 0)
            weights.append(math.exp(exponent))
        half, above, step = sum(weights) / 2, weights[-1], self.last
        while above < half and step > self.proven + 1:
            step -= 1
            above += weights[step - self.proven]
        return step

    def add(self, step: int, reached: int | None) -> None:
        """Add the outcome of a retry from ``step``: the latest step that its success proves, None for a failure."""
        self.played += 1
        if reached is None:
            self.failures[step] = self.failures.get(step, 0) + 1
        else:
            self.proven = max(self.proven, reached)

    @property
    def chance_after(self) -> float | None:
        """Bound on the policy's chance from the step after ``proven``; None if no retry began there."""
        count = self.failures.get(self.proven + 1, 0)
        return min(1.0, RULE_OF_THREE / count) if count else None


def reached_step(failure: list[str], retry: list[str], start: int) -> int:
    """Return the latest step of a failure that a successful retry proves not to be lost before.

    Args:
        failure: states before the steps of the failure, which decide everything that follows.
        retry: states before the steps of the retry, from the first step of the episode on.
        start: step that the retry began at.
    """
    times = {state: t for t, state in enumerate(retry)}  # the latest time of each state
    return max([start, *(t for t, state in enumerate(failure) if times.get(state, -1) >= t)])
