"""Search for the latest step from which retries of a failure succeed.

A retry from step t that reaches the goal within the turns left proves that the state before step t was not lost, so
t* >= t, and no later state is needed for it. Failures prove nothing: 0 successes of n retries bound the chance of the
policy that made them by 3/n (the rule of three, at 95 %), and say nothing about other policies. There is no posterior
over steps: how often a policy succeeds from a step that is not lost is unknown, so that it cannot be identified.

The bisection asks at the middle of the open steps, and stops there at the first success. With the retries that are left
of its budget it asks again where nothing succeeded, from the first open step on, because a step without a success may
still be one that is not lost.
"""

from dataclasses import dataclass, field

RULE_OF_THREE = 3.0
"""-ln(0.05), rounded up: with a chance above 3/n, n failures in a row have a probability below 5 %."""


@dataclass(slots=True)
class Bisection:
    """Search over the steps 1 to ``last`` of one failure; step 0 needs no retry, because t* >= 0."""

    last: int
    """Last step of the episode, T - 1: no pivot is later."""
    retries: int
    """Most retries of a step before the search goes lower."""
    budget: int
    """Most retries in all."""
    proven: int = 0
    """Latest step from which a retry succeeded: t* is at least this."""
    failures: dict[int, int] = field(default_factory=dict[int, int])
    """Failed retries by step."""
    played: int = 0
    _high: int = field(init=False)
    _sweep: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Begin with all steps open."""
        self._high = self.last

    def next_step(self) -> int | None:
        """Return the step of the next retry; None when the search is over."""
        if self.played >= self.budget or self.proven >= self.last:
            return None
        if self._high > self.proven:
            return (self.proven + self._high + 1) // 2
        if self._sweep <= self.proven or self._sweep > self.last:
            self._sweep = self.proven + 1
        return self._sweep

    def add(self, step: int, *, success: bool) -> None:
        """Add the outcome of a retry from ``step``."""
        self.played += 1
        if success:
            self.proven = max(self.proven, step)
            self._high = max(self._high, self.proven)
            self._sweep = 0
            return
        self.failures[step] = self.failures.get(step, 0) + 1
        if step <= self._high and self._high > self.proven:
            if self.failures[step] >= self.retries:
                self._high = step - 1
        else:
            self._sweep = step + 1

    @property
    def chance_after(self) -> float | None:
        """Bound on the policy's chance from the step after ``proven``; None if no retry began there."""
        count = self.failures.get(self.proven + 1, 0)
        return min(1.0, RULE_OF_THREE / count) if count else None
