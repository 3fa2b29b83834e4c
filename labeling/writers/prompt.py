"""Prompt of a teacher model: the collage, the proved facts, the compact log, and the sentences to choose from.

The teacher need not find the pivot: the certificate says where the episode was lost and, where a plan still existed,
how it began. It chooses the sentences that help most. The collage is one picture, named by the hash of its pixels like
a frame.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ...collage import collage, episode_tiles
from ...core.identity import digest
from ...core.images import Frame, decode
from ...core.messages import PromptMessages
from ..action_log import action_log, number_text
from ..analyzer import how_to_read, one_line
from ..base import GuidanceRequest
from ..domains import Failure, domain_of
from ..statements import MOST_FACTS, WORDINGS, Statement
from ..target import target_mode

VERSION = "10"
"""Version of the template and of the statements that it offers; any change of a text raises it."""

SIGN, FACTS, ACTION, WORDING, PROSE = "sign", "facts", "action", "wording", "prose"
"""Fields of the answer. All but the last are chosen from what is offered."""

MAX_PROSE_CHARS = 400
"""About three sentences; what is longer is cut."""


def answer_schema(request: GuidanceRequest) -> dict[str, Any]:
    """Return the JSON schema of the answer to one request: ids of what is offered, and one free text."""
    offer = request.offer

    def one_of(statements: Sequence[Statement]) -> dict[str, Any]:
        return {"type": "string", "enum": [each.id for each in statements]}

    fields = {
        SIGN: one_of(offer.signs),
        FACTS: {"type": "array", "items": one_of(offer.facts), "minItems": 1, "maxItems": MOST_FACTS},
        ACTION: one_of(offer.actions),
        WORDING: {"type": "integer", "minimum": 0, "maximum": WORDINGS - 1},
        PROSE: {"type": "string", "maxLength": MAX_PROSE_CHARS},
    }
    if not offer.actions:
        del fields[ACTION]
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def collage_of(request: GuidanceRequest) -> Frame:
    """Compose the collage that the Analyzer sees: RGB, shape (height, width, 3).

    Raises:
        KeyError: the request lacks a frame of its episode.
        ImageError: a frame cannot be decoded.
    """
    tiles = episode_tiles(request.profile.tiles, request.episode.frame_ids, request.episode.inside)
    return collage([_pixels(request.frames[key]) for key in tiles.frames], tiles.labels)


@lru_cache(maxsize=128)
def _pixels(data: bytes) -> Frame:
    """Decode a frame; the rollouts of a level, which are labelled one after the other, share many."""
    return decode(data)


def guidance_prompt(request: GuidanceRequest, picture_id: str) -> PromptMessages:
    """Render the prompt of one request around its collage, which is named by its frame id."""
    messages: tuple[dict[str, Any], ...] = (
        {
            "role": "user",
            "content": [{"type": "image", "frame_id": picture_id}, {"type": "text", "text": guidance_text(request)}],
        },
    )
    return PromptMessages(digest(messages), f"teacher.{request.episode.env}", VERSION, messages)


def guidance_text(request: GuidanceRequest) -> str:
    """Return the text part of the prompt."""
    episode, profile = request.episode, request.profile
    step, offer = request.verdict.pivot_step, request.offer
    shape_of_action = f'"{ACTION}": <name>, ' if offer.actions else ""
    sentences = domain_of(episode.env).sentences

    def listed(statements: Sequence[Statement]) -> list[str]:
        return [f'  - "{each.id}": {sentences.sentence(each)}' for each in statements]

    return "\n".join(
        [
            how_to_read(profile, episode.num_steps, tuple(map(len, episode.inside))),
            "",
            "You coach the agent that played it. A solver has already proved where and how the episode was lost, so do "
            "not look for another cause: choose what helps the agent most in its next attempt.",
            "",
            "Background:",
            *(f"- {fact}" for fact in facts(request)),
            "",
            "Compact action log:",
            action_log(profile.log_fields, episode.actions, episode.infos, request.decimals),
            "",
            "Answer with JSON only: a single object with these fields. The advice is put together from the sentences "
            "that you choose by their names.",
            f'- "{SIGN}" (string): what to look out for in a situation like this. One of:',
            *listed(offer.signs),
            f'- "{FACTS}" (list of 1 to {MOST_FACTS} strings): what happened, the most useful first. Any of:',
            *listed(offer.facts),
            *([f'- "{ACTION}" (string): what to do at step {step} instead. One of:'] if offer.actions else []),
            *listed(offer.actions),
            f'- "{WORDING}" (integer): 0 to {WORDINGS - 1}, which wording of the sentences is used.',
            f'- "{PROSE}" (string): a remark of your own in at most {MAX_PROSE_CHARS} characters of plain English, '
            "such as what in the picture shows the danger, or an empty text. Say nothing that facts, log or picture "
            "contradict.",
            "",
            "Shape of the answer:",
            f'{{"{SIGN}": <name>, "{FACTS}": [<name>, ...], {shape_of_action}"{WORDING}": <integer>, '
            f'"{PROSE}": <text>}}',
        ]
    )


def facts(request: GuidanceRequest) -> list[str]:
    """Return the proved facts of one label, a sentence each."""
    episode, verdict = request.episode, request.verdict
    certificate, step = verdict.certificate, verdict.pivot_step
    task, instruction = one_line(request.profile.task_description), one_line(episode.instruction)
    word = target_mode(episode.env, verdict.failure_mode, request.vocabulary)
    words = domain_of(episode.env, request.settings, episode.env_config)
    index = "the last step, by convention" if verdict.fallback else f"the index of {words.pivot}"
    meaning = "" if verdict.fallback else words.meaning(word)
    sentences = [f"Task: {task}"]
    if instruction and instruction != task:
        sentences.append(f"Instruction of this episode: {instruction}")
    sentences += [
        f"Turn budget: {episode.horizon}; steps made: {episode.num_steps}, counted from 0.",
        f"Pivot step: {step}. It is {index}.",
        f"Failure mode: {word}" + (f" ({meaning})." if meaning else "."),
        f"Action at step {step}: {_action(request)}.",
    ]
    sentences += _amounts(certificate.unit, certificate.before, certificate.after, request)
    sentences += words.background(episode, step)
    if verdict.infeasible_at_start and certificate.kind in ("exact", "lower_bound"):
        sentences.append("No action at any step could have reached the goal in the turns that were given.")
    if verdict.fallback and certificate.kind == "exact":
        sentences.append("No single action was fatal; the log ended while the goal was still within reach.")
    if verdict.witness:
        sentences.append(f"A plan that still worked from step {step} begins with: {verdict.witness[0]}.")
    if verdict.feasible_actions:
        sentences.append(
            f"Actions at step {step} that kept the goal within reach: {', '.join(verdict.feasible_actions)}."
        )
    return sentences


def _action(request: GuidanceRequest) -> str:
    episode, step = request.episode, request.verdict.pivot_step
    action = episode.actions[step]
    if action == request.profile.unusable_action:
        cut = bool(episode.finish_reasons) and episode.finish_reasons[step] == "length"
        return f"{action} (the reply {'broke off before it held an action' if cut else 'held no usable action'})"
    submission = episode.submission_outcomes[step] if episode.submission_outcomes else None
    if submission not in (None, "ok"):
        return f"{action} (it was not drawn: {submission})"
    is_idle = Failure(request.profile, episode, request.verdict).changed_nothing
    return f"{action} (it changed nothing)" if is_idle else action


def _turns(count: int) -> str:
    return f"{count} turn" if count == 1 else f"{count} turns"


def _amounts(unit: str, before: float | None, after: float | None, request: GuidanceRequest) -> list[str]:
    """Say what was needed before and after the pivot, in the certificate's unit."""
    certificate, step = request.verdict.certificate, request.verdict.pivot_step
    if unit == "score":
        scores = {"before the last submission": certificate.raw_before, "of it": certificate.raw_after}
        shown = [
            f"{name} {number_text(value, request.decimals)}" for name, value in scores.items() if value is not None
        ]
        return [f"Scores: {', '.join(shown)}; the target itself has 1."] if shown else []
    if unit == "stages":
        return [
            f"Stages open before step {step}: {before:g}, with {_turns(certificate.budget_before)} left; after it: "
            f"{after:g}, with {_turns(certificate.budget_after)} left."
        ]
    left = f"Turns left before step {step}: {certificate.budget_before}; after it: {certificate.budget_after}."
    least = "at least " if certificate.kind == "lower_bound" else ""
    is_open = certificate.reachable_after is None
    was, needed = ("not known",) * 2 if is_open else ("out of reach", "no number of actions is enough")
    was = was if before is None else f"{least}{before:g} {unit}"
    needed = needed if after is None else f"{least}{after:g} {unit}"
    return [left, f"Needed before step {step}: {was}; needed after it: {needed}."]
