"""The loose factual filter: the rules that a label must pass before anyone trains on it (spec section 4).

Every rule sees every label that speaks about its environment, and every objection is kept: a rule never hides another.
The text of an objection starts with a typed word and a colon, so that kinds can be counted within a rule. Adding a rule
is one class and one entry point in the group ``pivot.filters``.
"""

import json
import re
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

from .. import plugins
from ..environments.base import EnvProfile
from ..solvers.base import Case, Solver, Verdict
from .base import Draft, FailedEpisode, Filter
from .claims import (
    advised_action,
    claims,
    claims_arrival,
    claims_grasp,
    drawing_claims,
    handling_claims,
    is_refusal,
    outcome_claims,
)
from .manipulation import GRASP_COUNTS, open_stages, task_of
from .replay import DisagreementError
from .target import BadTargetError, Target, parse_target
from .vocabulary import target_mode


class TargetFilter(Filter):
    """The target parses, and it says what the label says, about a step that the episode has."""

    name: ClassVar[str] = "target"

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return the parser's typed problem, ``out_of_range`` or ``differs``."""
        verdict = draft.verdict
        try:
            target = parse_target(draft.target)
        except BadTargetError as error:
            return str(error)
        if not 0 <= target.pivot_step < episode.num_steps:
            return f"out_of_range: pivot_step {target.pivot_step} is not in [0, {episode.num_steps - 1}]"
        mode = target_mode(episode.env, verdict.failure_mode, draft.vocabulary)
        expected = Target(verdict.pivot_step, mode, draft.guidance or "")
        return None if target == expected else f"differs: the target says {target}, the label {expected}"


class ModeFilter(Filter):
    """The failure mode, and every secondary one, belongs to the environment's closed vocabulary."""

    name: ClassVar[str] = "mode"

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``unknown`` with the mode that the environment does not have."""
        profile: EnvProfile = plugins.load("environments", episode.env).profile
        for mode in (draft.verdict.failure_mode, *draft.verdict.secondary_modes):
            if mode not in profile.failure_modes:
                return f"unknown: {mode!r} is not a mode of {episode.env}: {', '.join(profile.failure_modes)}"
        return None


class ReplayFilter(Filter):
    """Re-executing the logged actions from the initial state gives the logged rewards, ``info``, frames and end."""

    name: ClassVar[str] = "replay"

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``settings``, ``horizon``, ``state``, ``action``, ``reward``, ``info``, ``frame`` or ``end``."""
        try:
            draft.replays.of(episode).check(episode)
        except DisagreementError as error:
            return str(error)
        return None


def names_pivot(step: int, action: str, text: str) -> bool:
    """Whether a text names step ``step`` or the action logged there."""
    return _pivot_pattern(step, action).search(text) is not None


@lru_cache(maxsize=4096)
def _pivot_pattern(step: int, action: str) -> re.Pattern[str]:
    """Match the step by number, or the logged action: verbatim, or any word of it (``pick`` of ``pick(1,2,3)``)."""
    words = [re.escape(action), *re.findall(r"[^\W\d_]{2,}", action)]
    return re.compile(rf"\bstep[ \-_]?0*{step}\b|(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


class GuidanceFilter(Filter):
    """Guidance, when a teacher was asked for it, is not empty and names step ``t*`` or the logged action there.

    The action has to stand as a word of its own; whether it is meant as one ("the box *left* of you") is not decided.
    """

    name: ClassVar[str] = "guidance"

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``empty`` or ``unrelated``."""
        if draft.guidance is None:
            return None
        if not draft.guidance.strip():
            return "empty: the teacher gave no text"
        step = draft.verdict.pivot_step
        action = episode.actions[step]
        if names_pivot(step, action, draft.guidance):
            return None
        return f"unrelated: the text names neither step {step} nor the action {action!r}"


@lru_cache(maxsize=1 << 14)
def _verdict_on(solver: Solver, state: str) -> Verdict | str:
    """Return the solver's verdict on wasting a turn in ``state``, or why it has none."""
    answer = solver.certify([Case(state, ["invalid"], 1)])[0]
    return answer if isinstance(answer, Verdict) else f"{answer.reason}, {answer.detail}"


class SokobanDeadlockFilter(Filter):
    """A deadlock is accepted only if re-execution reaches the state after ``t*`` that the solver pinned.

    Pinned means dead: the solver's certificate says that no plan of any length leads from ``s_{t*+1}`` to success. The
    environment, with its own rules, re-executes the actions up to and including ``t*``; its state text goes back to the
    solver as a level of its own, and the solver has to find that one dead, too. So neither a label moved to another
    step nor a difference between the two sets of rules can pass. An episode that cannot be re-executed that far is
    left to the ``replay`` rule.
    """

    name: ClassVar[str] = "sokoban_deadlock"
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban"})

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``certificate``, ``unproved`` or ``not_dead``."""
        verdict = draft.verdict
        if verdict.failure_mode != "deadlock":
            return None
        if verdict.certificate.reachable_after is not False or verdict.certificate.after is not None:
            return "certificate: the mode is deadlock, but the certificate says that the goal is within reach"
        try:
            state = draft.replays.of(episode).state_after(episode, verdict.pivot_step + 1)
        except DisagreementError:
            return None
        answer = _verdict_on(draft.solver, state)
        if isinstance(answer, Verdict) and answer.failure_mode == "deadlock":
            return None
        after = f"the state after step {verdict.pivot_step}"
        if isinstance(answer, Verdict):
            return f"not_dead: {after} can still be solved"
        return f"{'not_dead' if answer.startswith('not_a_failure') else 'unproved'}: {after}: {answer}"


def _in_hole(state: str) -> bool:
    """Whether the player of a FrozenLake state text is in a hole; off the start its last line is ``@ row column``."""
    *rows, last = state.splitlines()
    if not last.startswith("@"):
        return False
    row, column = map(int, last.split()[1:])
    return rows[row][column] == "H"


class FrozenLakeFactsFilter(Filter):
    """Guidance does not contradict whether the player fell into a hole, and whether turns were left.

    What a text claims is read by the word lists of :mod:`~pivot.labeling.claims`, whose limits stand there. A fall
    counts wherever it happens in the episode, since a later fall is a fact about a timeout, too. An episode that cannot
    be re-executed is left to the ``replay`` rule.
    """

    name: ClassVar[str] = "frozenlake_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"frozenlake"})

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``claims_fall``, ``denies_fall`` or ``claims_budget``."""
        claimed = claims(draft.guidance) if draft.guidance else frozenset[str]()
        if not claimed:
            return None
        verdict = draft.verdict
        if "budget" in claimed and verdict.failure_mode == "deadlock" and verdict.certificate.budget_after > 0:
            left = verdict.certificate.budget_after
            return f"claims_budget: the text says the turns ran out, but {left} were left at the deadlock"
        try:
            fell = _in_hole(draft.replays.of(episode).state_after(episode, episode.num_steps))
        except DisagreementError:
            return None
        if "fall" in claimed and not fell:
            return "claims_fall: the text says that the player fell into a hole, but it never did"
        if "no_fall" in claimed and fell:
            return "denies_fall: the text says that the player did not fall, but it did"
        return None


class OutcomeFilter(Filter):
    """Guidance neither declines to be guidance nor calls the failed episode a success."""

    name: ClassVar[str] = "outcome"

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``refusal`` or ``claims_success``."""
        text = draft.guidance or ""
        if is_refusal(text):
            return "refusal: the text declines to answer"
        if "success" in outcome_claims(text):
            return "claims_success: the text says that the task was done, but the episode failed"
        return None


class GridAdviceFilter(Filter):
    """Guidance does not advise an action at ``t*`` that loses the goal, as the solver proved.

    The advised action is the one that :func:`~pivot.labeling.claims.advised_action` reads from a sentence about step
    ``t*``. Where no action keeps the goal in reach, any advice passes.
    """

    name: ClassVar[str] = "grid_advice"
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban", "frozenlake"})

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``bad_action``."""
        verdict, good = draft.verdict, draft.verdict.feasible_actions or ()
        if not draft.guidance or not good:
            return None
        advised = advised_action(draft.guidance, verdict.pivot_step, ("up", "down", "left", "right"))
        if advised is None or advised in good:
            return None
        return f"bad_action: the text advises {advised} at step {verdict.pivot_step}, but only {', '.join(good)} held"


class SokobanFactsFilter(Filter):
    """Guidance does not contradict whether turns were left at a deadlock, nor call a room dead that never was.

    A box may be lost after an earlier timeout, so the claim is held against the state in which the episode ended.
    """

    name: ClassVar[str] = "sokoban_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban"})

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``claims_budget`` or ``claims_dead``."""
        verdict, text = draft.verdict, draft.guidance or ""
        left = verdict.certificate.budget_after
        if "budget" in claims(text) and verdict.failure_mode == "deadlock" and left > 0:
            return f"claims_budget: the text says the turns ran out, but {left} were left at the deadlock"
        if "dead" not in outcome_claims(text) or verdict.failure_mode == "deadlock":
            return None
        try:
            state = draft.replays.of(episode).state_after(episode, episode.num_steps)
        except DisagreementError:
            return None
        answer = _verdict_on(draft.solver, state)
        if isinstance(answer, Verdict) and answer.failure_mode != "deadlock":
            return "claims_dead: the text says that a box or the room was lost for good, but it could still be solved"
        return None


class SvgFactsFilter(Filter):
    """Guidance does not contradict the log of submissions and scores.

    What a text claims is read by the word lists of :mod:`~pivot.labeling.claims`. A rise or fall counts wherever it
    happens in the episode, and of the pivot alone it must be true that the submission was empty.
    """

    name: ClassVar[str] = "svg_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"svg"})

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``claims_exact``, ``claims_empty``, ``claims_worse`` or ``claims_better``."""
        claimed = drawing_claims(draft.guidance) if draft.guidance else frozenset[str]()
        scores = [float(info.get("average_score") or 0.0) for info in episode.infos]
        if "exact" in claimed:
            return f"claims_exact: the text says that the target was reproduced, but the last score is {scores[-1]}"
        if "empty" in claimed and episode.actions[draft.verdict.pivot_step] != "empty":
            return f"claims_empty: the text says that nothing was submitted, but step {draft.verdict.pivot_step} did"
        if "worse" in claimed and not any(after < before for before, after in pairwise(scores)):
            return f"claims_worse: the text says that the drawing got worse, but the scores are {scores}"
        if "better" in claimed and not any(after > before for before, after in pairwise(scores)):
            return f"claims_better: the text says that the drawing got better, but the scores are {scores}"
        return None


class NavigationFactsFilter(Filter):
    """Guidance does not claim that the target was reached, which no failed episode does.

    What a text claims is read by the word lists of :mod:`~pivot.labeling.claims`; the target's own name is one of the
    words. Advice ("reach the bread"), conditions ("once it is reached") and denials are no claims.
    """

    name: ClassVar[str] = "navigation_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"navigation"})

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``claims_arrival``."""
        if not draft.guidance or not claims_arrival(draft.guidance, _target_type(episode.initial_state)):
            return None
        nearest = min((float(d) for info in episode.infos if (d := info.get("dist")) is not None), default=None)
        found = "the log has no distance" if nearest is None else f"the nearest it came is {nearest:.2f} m"
        return f"claims_arrival: the text says that the target was reached, but {found}"


class PrimitiveSkillFactsFilter(Filter):
    """Guidance claims no goal, stage or grasp that the log denies, nor that an answer was empty that was not.

    What a text claims is read by the word lists of :mod:`~pivot.labeling.claims`. A stage counts wherever in the
    episode it was achieved; of the pivot alone it must be true that the answer was empty.
    """

    name: ClassVar[str] = "primitiveskill_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"primitiveskill"})

    def check(self, episode: FailedEpisode, draft: Draft) -> str | None:
        """Return ``claims_goal``, ``claims_stages``, ``denies_stages``, ``claims_grasp`` or ``claims_empty``."""
        text, kind, counts = draft.guidance or "", task_of(episode.initial_state), open_stages(episode)
        claimed, step = handling_claims(text), draft.verdict.pivot_step
        left = counts[-1] if counts else 0
        achieved = len(kind.stages) - left if kind is not None and counts else None
        grasped = claims_grasp(text, GRASP_COUNTS.get(kind.name, ())) if kind is not None and achieved == 0 else None
        objections = {
            "claims_goal: the text says that what was asked for was done, but the episode failed": "goal" in claimed,
            f"claims_stages: the text says that all stages were achieved, but {left} stayed open": (
                "stages" in claimed and left > 0
            ),
            f"denies_stages: the text says that no stage was achieved, but {achieved} were": (
                "no_stage" in claimed and bool(achieved)
            ),
            f"claims_grasp: the text says that the {grasped} was picked up, but no stage was achieved": (
                grasped is not None
            ),
            f"claims_empty: the text says that no command came, but step {step} has one": (
                "empty" in claimed and episode.actions[step] != "empty"
            ),
        }
        return next((objection for objection, holds in objections.items() if holds), None)


@lru_cache(maxsize=256)
def _target_type(state: str) -> str:
    """Return the name of what a navigation state asks for; empty where the text is no such state."""
    try:
        return str(json.loads(state)["target"]["type"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""  # the replay rule says so
