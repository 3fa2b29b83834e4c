"""PrimitiveSkill: stages, grasps, and what a perfect player would have done."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from ...environments.primitiveskill import KINDS, Scene, TaskKind, reached
from ...errors import LevelError
from ...rollouts.scripted.primitiveskill_expert import expert_action
from ...solvers.base import Verdict
from ...solvers.primitiveskill import HELD_ABOVE, read_observation
from ..advice import NO_MOVES
from ..base import Draft, Objection
from ..claims import Claim, Truth, lexicon
from ..episode import FailedEpisode
from ..texts import FactsFilter, advice_problem
from .base import Domain, general_truths
from .lexicon import ACTION_REPEATED, FAULT, NO_ACTION, TURNS_RAN_OUT, target_reached
from .phrases import Facts, count

GRASP_COUNTS = {"place": ("red cube",), "stack": ("red cube", "purple cube"), "drawer": ("apple",)}
"""Things whose grasp is a stage in itself: where no stage was achieved, they were never in the hand."""


def task_of(initial_state: str) -> TaskKind | None:
    """Return what is fixed about the task of a state text; None where the text names no task."""
    try:
        return KINDS.get(json.loads(initial_state)["task"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # the solver or the replay rule says so


def open_stages(episode: FailedEpisode) -> list[int]:
    """Return how many stages were open after each step that logs it."""
    return [count for info in episode.infos if type(count := info.get("remaining_stages")) is int]


def would_serve(episode: FailedEpisode, step: int) -> str | None:
    """Return the action that a perfect player would have taken at a step; None where the log does not tell."""
    kind = task_of(episode.initial_state)
    if kind is None or not 0 <= step < len(episode.observations):
        return None
    return _would_serve(kind.name, episode.observations[step])


@lru_cache(maxsize=1 << 12)
def _would_serve(task: str, observation: str) -> str | None:
    kind = KINDS[task]
    try:
        at, opening = read_observation(task, observation)
    except LevelError:
        return None
    high = [thing for thing, (_, _, z) in zip(kind.things, at, strict=True) if z > HELD_ABOVE[task]]
    in_hand = min(high, key=lambda thing: at[kind.things.index(thing)][2], default=None)
    positions = {thing: (float(x), float(y), float(z)) for thing, (x, y, z) in zip(kind.things, at, strict=True)}
    scene = Scene(positions, in_hand, float(opening) if task == "drawer" else None)
    # Within the rounding the goal may seem reached; then nothing can be advised.
    return None if reached(kind, scene) else expert_action(kind, scene)


def manipulation_facts(episode: FailedEpisode, step: int) -> list[str]:
    """Return facts for a teacher, a sentence each: the task's stages, where things were, what would have served."""
    kind = task_of(episode.initial_state)
    if kind is None:
        return []
    stages = "; ".join(kind.stages)
    found = [f"Stages of the task, each counted once it has been achieved: {stages}."]
    if step < len(episode.observations) and episode.observations[step]:
        told = "; ".join(episode.observations[step].splitlines()[1:])
        found.append(f"Told before step {step}, in the order {_order(kind)}: {told}.")
    if (action := would_serve(episode, step)) is not None:
        found.append(f"An action that would have served at step {step}: {action}.")
    return found


def _order(kind: TaskKind) -> str:
    fixed: dict[str, Sequence[Any]] = {"place": ("left target", "right target"), "drawer": ("middle of the tray",)}
    return ", ".join((*kind.things, *fixed.get(kind.name, ())))


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
    stages, turns = count(facts.after or 0, "stage"), count(facts.budget_after, "turn")
    if facts.hopeless:
        given = count(facts.budget_before, "turn")
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


class PrimitiveSkillDomain(Domain):
    """What is said about it."""

    pivot: str = (
        "the first step after which more stages of the task are open than turns are left, a stage being taken to "
        "need a turn"
    )
    advice: str = (
        "Prefer a command that was carried out and achieved nothing; a turn without one (action=empty) is the pivot "
        "only when that turn was the one too many."
    )
    log_advice: str = "remaining_stages and remaining_turns are those after the step."
    meanings: Mapping[str, str] = {
        "timeout": "the turn at the pivot was used, but more stages are open after it than turns are left",
        "format": "the reply at the pivot held no pick, place or push that could be carried out",
        "wrong_target": "a thing was to be picked and placed in the turn at the pivot, and no stage was achieved",
        "order_error": "the turn at the pivot places or pushes, and nothing had been picked before",
    }

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences; see the base class."""
        return _primitiveskill(facts)

    def facts(self, episode: FailedEpisode, step: int) -> list[str]:
        """Return the task's stages, where things were, and what would have served."""
        return manipulation_facts(episode, step)

    def would_serve(self, episode: FailedEpisode, step: int) -> str | None:
        """Return the perfect player's action for what the observation tells."""
        return would_serve(episode, step)

    def claims(self, episode: FailedEpisode) -> tuple[Claim, ...]:
        """Return what a text may claim; see the base class."""
        kind = task_of(episode.initial_state)
        things = None if kind is None else GRASP_COUNTS.get(kind.name)
        return _CLAIMS if things is None else (*_CLAIMS, _of_stage(things))

    def truths(self, episode: FailedEpisode, verdict: Verdict) -> dict[str, Truth]:
        """Return what log and certificate tell; see the base class."""
        step, kind, counts = verdict.pivot_step, task_of(episode.initial_state), open_stages(episode)
        told = kind is not None and len(counts) == episode.num_steps
        achieved = len(kind.stages) - counts[-1] if kind is not None and told else None
        by_pivot = len(kind.stages) - counts[step] if kind is not None and told else None
        some = None if achieved is None or by_pivot is None else Truth(by_pivot > 0, achieved > 0)
        return general_truths(episode, verdict) | {
            "turns_ran_out": Truth.of(None if verdict.fallback else True),
            "grasped": Truth.of(None if _any_pick(episode, step) else False),
            "stage_thing_grasped": Truth.of(False if achieved == 0 else None),
            "stage_achieved": some or Truth.of(None),
            "all_stages": Truth.of(counts[-1] == 0 if told else None),
        }

    def amounts(self, episode: FailedEpisode, verdict: Verdict) -> Iterator[float]:
        """Yield the numbers that a text may give, with the counts of stages and the coordinates that were told."""
        yield from super().amounts(episode, verdict)
        step = verdict.pivot_step
        told = (episode.actions[step], self.would_serve(episode, step) or "", *episode.observations[step : step + 1])
        yield from (abs(float(number)) for text in told for number in re.findall(r"\d+", text))
        kind, counts = task_of(episode.initial_state), open_stages(episode)
        if kind is not None and counts:
            yield from (len(kind.stages), len(kind.stages) - counts[-1], len(kind.stages) - counts[verdict.pivot_step])


# What a text may claim

_WAS = (
    r"(?:(?:was|were|is|are|has been|have been|had been|got|stood|stand) )"
    r"(?:(?:now|already|finally|successfully|all|both) )*"
)
_THING = r"(?:(?:red|green|purple|blue|yellow) )?(?:cubes?|apple|things?|blocks?|objects?)"
_STAGES = r"(?:stages?|subgoals?|sub-goals?|parts of the task)"
_DONE = r"(?:achieved|complete|completed|done|finished|reached|met)"

TURNS = Claim(
    TURNS_RAN_OUT.name,
    "after step {step} more stages were open than turns were left",
    TURNS_RAN_OUT.says,
    TURNS_RAN_OUT.denies,
)
GRASPED = Claim(
    "grasped",
    "a thing was picked up up to step {step}",
    lexicon(
        rf"(?:picked up|grasped|gripped|grabbed|lifted|carried|placed|put|stacked) (?:the |a |an |its |"
        rf"one )(?:\w+ )?{_THING}",
        rf"{_THING} {_WAS}(?:properly |correctly |then )?(?:picked(?: up)?|grasped|gripped|grabbed|lifted|held|"
        rf"carried|placed|put)",
        r"(?:had|has|have) been (?:properly |correctly )?(?:picked up|grasped|gripped|lifted)",
    ),
)


@lru_cache(maxsize=8)
def _of_stage(things: tuple[str, ...]) -> Claim:
    """Return the claim that a thing was in the hand whose grasp is a stage."""
    named = "|".join(things)
    return Claim(
        "stage_thing_grasped",
        f"the {' or the '.join(things)} was picked up up to step {{step}}",
        lexicon(
            rf"(?:picked up|grasped|gripped|grabbed|lifted|carried|held) (?:the |a |an )?(?:{named})",
            rf"(?:{named}) {_WAS}(?:\w+ )?(?:picked up|grasped|gripped|grabbed|lifted|held|carried)|"
            rf"(?:held|holding|carrying) (?:the )?(?:{named})",
        ),
    )


STAGE_DONE = Claim(
    "stage_achieved",
    "at least one stage was achieved up to step {step}",
    lexicon(
        rf"(?:a|one|two|three|some|the first|several|most|any|all|"
        rf"both)(?: of)?(?: the)?(?: \w+)? {_STAGES}(?: at all)? "
        rf"(?:{_WAS}){_DONE}",
        rf"{_STAGES}(?: \w+)? (?:{_WAS}){_DONE}|(?:achieved|completed|finished|reached)(?: \w+){{0,4}} {_STAGES}",
        r"(?:some|good|real) progress was made",
    ),
    lexicon(
        rf"(?:no|none of the|not one|not a single)(?: \w+)? {_STAGES}(?: at all)? (?:{_WAS})(?:ever )?{_DONE}",
        rf"(?:never|did not|didn't) (?:achieved?|completed?|finish(?:ed)?|reach(?:ed)?) (?:a|any|"
        rf"one)(?: \w+)? {_STAGES}",
    ),
)
ALL_STAGES = Claim(
    "all_stages",
    "all stages had been achieved after step {step}",
    lexicon(
        rf"(?:all|both|every|each) (?:of )?(?:the )?(?:\w+ )?{_STAGES} {_WAS}{_DONE}",
        r"(?:achieved|completed|finished|reached) (?:all|every one) of the (?:\w+ )?stages",
    ),
)
_CLAIMS = (
    target_reached(
        "the task was done at the end",
        rf"(?:cubes|blocks|they) {_WAS}(?:aligned|lined up|in line|stacked|on top of)",
        rf"(?:cubes?|apple|blocks?|everything|things?) {_WAS}(?:\w+ )?(?:on|at|in|into|to) (?:its|their|the) "
        r"(?:targets?|goals?|places?|drawer)",
        rf"(?:cubes?|apple|blocks?|everything|things?) {_WAS}(?:brought|put|moved|placed|carried) (?:on|at|in|into|"
        rf"to|onto) "
        r"(?:its|their|the) (?:targets?|goals?|places?|drawer)",
        rf"(?:tower|stack|alignment|arrangement) {_WAS}(?:built|complete|completed|finished|done|standing)",
        rf"drawer {_WAS}(?:shut|closed)|(?:in|inside|into) the drawer(?! slot)",
        r"(?:cubes?|apple|blocks?) (?:\w+ )?(?:reached|found|met) (?:its|their|the) (?:targets?|goals?|places?)",
        unless=rf"{_STAGES}",
    ),
    TURNS,
    NO_ACTION,
    ACTION_REPEATED,
    GRASPED,
    STAGE_DONE,
    ALL_STAGES,
    FAULT,
)


def _any_pick(episode: FailedEpisode, step: int) -> bool:
    """Whether a pick was issued up to a step, whatever came of it."""
    turns = zip(episode.actions[: step + 1], episode.infos, strict=False)
    return any("pick(" in action and info.get("legal") is not False for action, info in turns)


DOMAIN = PrimitiveSkillDomain()


class PrimitiveSkillFactsFilter(FactsFilter):
    """Guidance does not contradict the facts of its manipulation, nor advise to repeat the turn that lost it."""

    name: ClassVar[str] = "primitiveskill_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"primitiveskill"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return an untrue claim or ``bad_action``."""
        return super().check(episode, draft) or advice_problem(NO_MOVES, episode, draft.verdict, draft.guidance or "")
