"""The embedded guidance writer: two sentences put together from the certificate, a stand-in for a teacher model.

The first sentence says what to avoid and states the proved facts; the second is a short command that names step ``t*``,
the logged action and, where one exists, the first action of the witness. The same label always gets the same text. An
environment has a phrase book of its own in ``PHRASES``; any other gets general sentences from the mode's meaning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...plugins import Settings
from ..base import Guidance, GuidanceRequest, GuidanceWriter
from ..manipulation import would_serve
from ..vocabulary import target_mode
from ..wording import wording

VERSION = "1"
"""Version of the phrases; any change of a text raises it."""


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


Phrases = Callable[[Facts], tuple[str, str]]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _command(facts: Facts, verb: str) -> str:
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


def _spent(facts: Facts, task: str) -> str:
    """Return the budget facts of a timeout: what ``task`` still took on both sides of the action."""
    return (
        f"with {_count(facts.budget_before, 'turn')} left {task} took {_count(facts.before or 0, 'move')}, "
        f"and after this turn it took {facts.after} with {facts.budget_after} left."
    )


def _wasteful(facts: Facts, detour: str) -> str:
    if not facts.usable:
        return "replies without a usable action"
    return detour if facts.moved else "turns that change nothing"


def _sokoban(facts: Facts) -> tuple[str, str]:
    verb = "push" if facts.mode == "deadlock" else "move"
    if facts.fallback:
        avoid = "Avoid leaving the room half solved: when the log ends, a plan within the turns left still existed."
    elif facts.hopeless and facts.before is None:
        avoid = "Avoid treating this room as winnable: from its first position a box can never be brought to a target."
    elif facts.hopeless:
        avoid = (
            f"Avoid losing any move in such a room: it takes {_count(facts.before or 0, 'move')} "
            f"and only {_count(facts.budget_before, 'turn')} were given."
        )
    elif facts.mode == "deadlock":
        avoid = (
            f"Avoid pushing a box to a place from which it can never be brought to a target: "
            f"before this push {_count(facts.before or 0, 'move')} solved the room, after it no number of moves does."
        )
    else:
        avoid = f"Avoid {_wasteful(facts, 'detours around the box')}: {_spent(facts, 'the room')}"
    return avoid, _command(facts, verb)


def _frozenlake(facts: Facts) -> tuple[str, str]:
    if facts.fallback:
        avoid = (
            "Avoid stopping short of the goal: when the log ends, a path over ice within the turns left still existed."
        )
    elif facts.hopeless and facts.before is None:
        avoid = "Avoid treating this lake as winnable: no path over ice leads from the start to the goal."
    elif facts.hopeless:
        avoid = (
            f"Avoid losing any move on such a lake: the path over ice takes {_count(facts.before or 0, 'move')} "
            f"and only {_count(facts.budget_before, 'turn')} were given."
        )
    elif facts.mode == "deadlock":
        avoid = (
            f"Avoid stepping into a hole, which ends the episode at once: the goal was "
            f"{_count(facts.before or 0, 'move')} away over ice with {_count(facts.budget_before, 'turn')} left."
        )
    else:
        avoid = f"Avoid {_wasteful(facts, 'detours on the ice')}: {_spent(facts, 'the path over ice')}"
    return avoid, _command(facts, "move")


def _svg(facts: Facts) -> tuple[str, str]:
    at, before, after = f"At step {facts.step}", facts.raw_before, facts.raw_after or 0.0
    if facts.mode == "format":
        had = "" if before is None else f", where the submission before had {_score(before)}"
        if not facts.usable:
            return (
                f"Avoid replies without a document: an empty submission scores 0{had}.",
                f"{at}, do not leave the answer empty; send one whole document from <svg> to </svg>.",
            )
        return (
            f"Avoid documents that cannot be drawn, such as unclosed tags or missing quotes: they score 0{had}.",
            f"{at}, do not send svg code that breaks off; close every tag and check the document before you send it.",
        )
    if facts.mode == "regression":
        return (
            f"Avoid giving up what was right: with this submission the score fell from {_score(before)} to "
            f"{_score(after)}.",
            f"{at}, keep the shapes of the submission before that fit the target and change only those that do not.",
        )
    if facts.mode == "stagnation":
        return (
            f"Avoid spending a turn on nearly the same picture: the score was {_score(before)} and stayed at "
            f"{_score(after)}.",
            f"{at}, do not repeat the document; compare the canvas with the target and redraw what differs most.",
        )
    earlier = "" if before is None else f" after {_score(before)} on the submission before"
    return (
        f"Avoid stopping at a rough likeness: the last drawing scored {_score(after)}{earlier}; an exact match has 1.",
        f"{at}, draw every shape of the target, none besides, each with its own place, size and colour.",
    )


def _score(score: float | None) -> str:
    """Three decimals; cut, not rounded, so that no failed drawing seems exact."""
    return f"{int(1000 * (score or 0.0)) / 1000:.3f}"


def _navigation(facts: Facts) -> tuple[str, str]:
    at, avoid = f"At step {facts.step}", _navigation_avoid(facts)
    if facts.hopeless:
        return avoid, f"{at}, do not count on {facts.action}: nothing there kept the target in reach."
    stop, go = f"do not choose {facts.action}", f"take {facts.instead} instead"
    if facts.instead is None:
        go = "take the move that shortens the way to the target most"
    if facts.fallback:
        stop = f"do not end with {facts.action}"
    elif not facts.usable:
        stop = f"do not leave the reply without an action ({facts.action})"
    elif facts.mode == "blocked":
        stop = f"do not run into what is in the way with {facts.action}"
        go = "go around it" if facts.instead is None else f"go around it with {facts.instead}"
    return avoid, f"{at}, {stop}; {go}."


def _navigation_avoid(facts: Facts) -> str:
    metres = f"{facts.raw_after or 0.0:.2f} m"
    if facts.hopeless:
        return (
            f"Avoid losing any turn on so long a way: the {facts.raw_before or 0.0:.2f} m to the target take at least "
            f"{_count(facts.before or 0, 'move')}, and only {_count(facts.budget_before, 'turn')} were given."
        )
    if facts.fallback:
        return f"Avoid stopping on the way: when the log ends, {metres} are left to the target and so are turns."
    habit = {
        "format": "replies without a usable action, each of which costs a turn",
        "blocked": "walking into what stands in the way, since a stopped move costs its turn",
        "stagnation": "turns that bring the target no nearer",
    }.get(facts.mode, "detours and turns of the head that the way does not need")
    needed = _count(facts.after or 0, "move")
    return (
        f"Avoid {habit}: after this turn the {metres} to the target take at least {needed}, "
        f"with {_count(facts.budget_after, 'turn')} left."
    )


def _primitiveskill(facts: Facts) -> tuple[str, str]:
    at = f"At step {facts.step}"
    go = "pick up what is still in a wrong place and put it where it belongs in the same turn"
    if facts.served is not None:
        go = f"take {facts.served}"
    if facts.hopeless:
        command = f"{at}, do not count on {facts.action}: there were fewer turns than stages from the start."
    elif facts.served == facts.action:
        command = f"{at}, {facts.action} comes too late; take such a turn from the first step on."
    elif not facts.usable:
        command = f"{at}, do not leave the answer without a command ({facts.action}); {go}."
    else:
        command = f"{at}, do not answer {facts.action}; {go} instead."
    return _primitiveskill_avoid(facts), command


def _primitiveskill_avoid(facts: Facts) -> str:
    stages, turns = _count(facts.after or 0, "stage"), _count(facts.budget_after, "turn")
    if facts.hopeless:
        given = _count(facts.budget_before, "turn")
        return f"Avoid losing any turn on such a task: it has {facts.before} open stages, and only {given} were given."
    if facts.fallback and not facts.after:
        return (
            "Avoid taking achieved stages for the goal: all of them had been achieved, and yet not everything was in "
            "its place at the end."
        )
    if facts.fallback:
        return f"Avoid stopping on the way: when the log ends, {stages} and {turns} are left."
    habit = {
        "format": "answers without a pick, place or push that can be carried out",
        "order_error": "placing or pushing before anything has been picked up",
        "wrong_target": "picking and placing beside the thing or the place that is meant, which achieves nothing",
    }.get(facts.mode, "turns that achieve less than the turns left demand")
    verb = "is" if facts.after == 1 else "are"
    return f"Avoid {habit}: after this turn {stages} {verb} open with {turns} left."


def _general(facts: Facts) -> tuple[str, str]:
    avoid = f"Avoid what ended this attempt ({facts.word})"
    return f"{avoid}: {facts.meaning}." if facts.meaning else f"{avoid}.", _command(facts, "choose")


PHRASES: dict[str, Phrases] = {
    "sokoban": _sokoban,
    "frozenlake": _frozenlake,
    "svg": _svg,
    "navigation": _navigation,
    "primitiveskill": _primitiveskill,
}
"""Phrase book of each environment: facts to (what to avoid, what to do)."""


def _whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)


def facts_of(request: GuidanceRequest) -> Facts:
    """Collect what may be said about the pivot of one label."""
    episode, verdict = request.episode, request.verdict
    certificate, step = verdict.certificate, verdict.pivot_step
    action = episode.actions[step]
    word = target_mode(episode.env, verdict.failure_mode, request.vocabulary)
    return Facts(
        step=step,
        action=action,
        usable=action != request.profile.unusable_action,
        moved=episode.infos[step].get("moved") is not False,
        mode=verdict.failure_mode,
        word=word,
        meaning=wording(episode.env).meaning(word),
        instead=verdict.witness[0] if verdict.witness else None,
        before=_whole(certificate.before),
        after=_whole(certificate.after),
        budget_before=certificate.budget_before,
        budget_after=certificate.budget_after,
        hopeless=verdict.infeasible_at_start,
        fallback=verdict.fallback,
        raw_before=certificate.raw_before,
        raw_after=certificate.raw_after,
        served=would_serve(episode, step) if episode.env == "primitiveskill" else None,
    )


class TemplateWriter(GuidanceWriter):
    """Writes guidance from the certificate alone; stands in for a teacher model and is named so in every row."""

    name = "template"
    config_type: ClassVar[type[Settings]] = Settings
    is_stand_in: ClassVar[bool] = True

    @property
    def config(self) -> dict[str, Any]:
        """The version of the phrases; nothing else decides the texts."""
        return {"version": VERSION}

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Answer ``requests``, in order."""
        return [
            Guidance(" ".join(PHRASES.get(request.episode.env, _general)(facts_of(request)))) for request in requests
        ]
