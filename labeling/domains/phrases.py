"""What phrase books are made of: the facts of a label, and the half-sentences that several environments say."""

from dataclasses import dataclass

from ..action_log import FLOAT_DECIMALS, number_text


@dataclass(frozen=True, slots=True)
class Facts:
    """What a phrase may say about the pivot; all of it follows from the stored label and log."""

    step: int
    action: str
    usable: bool
    """False when the reply at the pivot held no action."""
    moved: bool
    """Whether the action changed anything."""
    mode: str
    """The certificate's mode."""
    word: str
    """The word for it in the target."""
    meaning: str
    """What the word means."""
    instead: str | None
    """First action of the witness; None when there is no witness."""
    before: int | None
    """Moves that solved the task from the state before the action; None when none did."""
    after: int | None
    budget_before: int
    budget_after: int
    hopeless: bool
    """The goal was out of budget before any action."""
    fallback: bool
    raw_before: float | None
    """Score or metres before the action at the pivot, where there is such a measure."""
    raw_after: float | None
    """The same after it."""
    served: str | None = None
    """An action that would have served at the step, by a perfect player, where no proof names one."""
    reply: str | None = None
    """What the reply grammar made of the reply at the pivot, where it is known."""
    cut: bool = False
    """Whether that reply broke off at its limit of length."""
    submission: str | None = None
    """What became of the submission at the pivot, where actions submit something."""
    decimals: int = FLOAT_DECIMALS
    """With how many the log shows measurements."""

    def measure(self, raw: float | None) -> str:
        """Return a measurement as the log shows it, so that both say the same."""
        return number_text(raw or 0.0, self.decimals)


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def command(facts: Facts, verb: str) -> str:
    """Return the imperative sentence; ``verb`` fits the logged action, as in ``push`` up."""
    at = f"At step {facts.step}"
    if facts.hopeless:
        if not facts.usable:
            return f"{at}, do not send a reply without an action, even though none kept the goal in reach."
        return f"{at}, do not count on {facts.action}: no action there kept the goal in reach."
    if facts.instead is None:
        return f"{at}, do not repeat {facts.action}; choose an action that makes progress."
    if facts.fallback:
        return f"{at}, where the log ends with {facts.action}, go on with {facts.instead}."
    if not facts.usable:
        return f"{at}, do not leave the reply without an action ({facts.action}); answer {facts.instead}."
    return f"{at}, do not {verb} {facts.action}; move {facts.instead} instead."


def spent(facts: Facts, task: str) -> str:
    """Return the budget facts of a timeout: what ``task`` still took on both sides of the action."""
    return (
        f"with {count(facts.budget_before, 'turn')} left {task} took {count(facts.before or 0, 'move')}, "
        f"and after this turn it took {facts.after} with {facts.budget_after} left."
    )


def wasteful(facts: Facts, detour: str) -> str:
    """Name the habit behind a turn that was one too many."""
    if not facts.usable:
        return "replies without a usable action"
    return detour if facts.moved else "turns that change nothing"


def general_phrases(facts: Facts) -> tuple[str, str]:
    """Return the sentences for an environment without a phrase book."""
    avoid = f"Avoid what ended this attempt ({facts.word})"
    return f"{avoid}: {facts.meaning}." if facts.meaning else f"{avoid}.", command(facts, "choose")
