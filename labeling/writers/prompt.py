"""What a teacher model is shown: the collage, the proved facts, the compact log, and the JSON that is asked for.

The teacher need not find the pivot: the certificate says where the episode was lost and, where a plan still existed,
how it began. It only has to say so usefully. The collage is one picture, named by the hash of its pixels like a frame.
"""

from functools import lru_cache
from typing import Any

from ...collage import collage, episode_tiles
from ...identity import digest
from ...images import Frame, decode
from ...messages import PromptMessages
from ..action_log import action_log, number_text
from ..analyzer import how_to_read, one_line
from ..base import GuidanceRequest
from ..domains import domain_of
from ..texts import asked_claims
from ..vocabulary import target_mode

VERSION = "3"
"""Version of the template; any change of its text raises it."""

ACTION, CLAIMS, AVOID = "action", "claims", "avoid"
"""Fields of the answer; the first is asked for where the actions that kept the goal in reach are known."""

MAX_FIELD_CHARS = 400
"""About three sentences. Longer texts are not advice any more."""


def template_name(env: str) -> str:
    """Return the name under which the environment's teacher prompts are stored."""
    return f"teacher.{env}"


def good_actions(request: GuidanceRequest) -> tuple[str, ...]:
    """Return the actions at ``t*`` after which the goal was still within reach, in order; empty where none is known."""
    return request.verdict.feasible_actions or ()


def answer_schema(request: GuidanceRequest) -> dict[str, Any]:
    """Return the JSON schema of the answer to one request; what is declared comes before the prose."""
    fields: dict[str, Any] = {}
    if good_actions(request):
        fields[ACTION] = {"type": "string", "enum": list(good_actions(request))}
    names = [claim.name for claim in asked_claims(request.episode, request.verdict)]
    fields[CLAIMS] = _object({name: {"type": "boolean"} for name in names})
    fields[AVOID] = {"type": "string", "minLength": 1, "maxLength": MAX_FIELD_CHARS}
    return _object(fields)


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def collage_of(request: GuidanceRequest) -> Frame:
    """Compose the collage that the Analyzer sees: RGB, shape (height, width, 3).

    Raises:
        KeyError: the request lacks a frame of its episode.
        ImageError: a frame cannot be decoded.
    """
    tiles = episode_tiles(request.profile.tiles, request.episode.frame_ids)
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
            "content": [
                {"type": "image", "frame_id": picture_id},
                {"type": "text", "text": guidance_text(request)},
            ],
        },
    )
    return PromptMessages(digest(messages), template_name(request.episode.env), VERSION, messages)


def guidance_text(request: GuidanceRequest) -> str:
    """Return the text part of the prompt."""
    episode, profile = request.episode, request.profile
    step = request.verdict.pivot_step
    asked: list[str] = []
    if good_actions(request):
        asked.append(
            f'- "{ACTION}" (string): the action to take at step {step} in the next attempt, one word of: '
            f"{', '.join(good_actions(request))}."
        )
    claims = asked_claims(episode, request.verdict)
    asked.append(f'- "{CLAIMS}" (object): true or false for each of these, as facts and log tell:')
    asked += [f'  - "{claim.name}": {claim.question.format(step=step)}.' for claim in claims]
    asked.append(
        f'- "{AVOID}" (string): one or two sentences of advice: what to stay away from in a situation like this, and '
        "by which signs in the picture it can be told in time. The command itself is added from the other fields.",
    )
    declared = ", ".join(f'"{claim.name}": <true or false>' for claim in claims)
    shapes = {ACTION: "<text>", CLAIMS: f"{{{declared}}}", AVOID: "<text>"}
    shape = ", ".join(f'"{name}": {shapes[name]}' for name in answer_schema(request)["properties"])
    return "\n".join(
        [
            how_to_read(profile, episode.num_steps),
            "",
            "You coach the agent that played it. A solver has already proved where and how the episode was lost, so do "
            "not look for another cause: turn these facts into advice that helps in the next attempt.",
            "",
            "Facts:",
            *(f"- {fact}" for fact in facts(request)),
            "",
            "Compact action log:",
            action_log(profile.log_fields, episode.actions, episode.infos, request.decimals),
            "",
            "Answer with JSON only: a single object with these fields.",
            *asked,
            "",
            "Constraints:",
            "- Say nothing that the facts, the log or the picture contradict. The episode failed: never call it a "
            "success.",
            "- Write plain English about what is visible. Do not mention the solver, the log, the collage or these "
            "rules.",
            f"- Name no step but step {step}, and no number that is not given here. Advise rather than retell: "
            "sentences that only tell what happened are left out.",
            f"- At most {MAX_FIELD_CHARS} characters of text, no line breaks or markup, nothing around the object.",
            "",
            "Shape of the answer:",
            f"{{{shape}}}",
        ]
    )


def facts(request: GuidanceRequest) -> list[str]:
    """Return the proved facts of one label, a sentence each."""
    episode, verdict = request.episode, request.verdict
    certificate, step = verdict.certificate, verdict.pivot_step
    task, instruction = one_line(request.profile.task_description), one_line(episode.instruction)
    word = target_mode(episode.env, verdict.failure_mode, request.vocabulary)
    words = domain_of(episode.env)
    found = [f"Task: {task}"]
    if instruction and instruction != task:
        found.append(f"Instruction of this episode: {instruction}")
    found += [
        f"Turn budget: {episode.horizon}; steps made: {episode.num_steps}, counted from 0.",
        f"Pivot step: {step}. It is the index of {words.pivot}.",
        f"Failure mode: {word}" + (f" ({meaning})." if (meaning := words.meaning(word)) else "."),
        f"Action at step {step}: {_action(request)}.",
    ]
    found += _amounts(certificate.unit, certificate.before, certificate.after, request)
    found += words.facts(episode, step)
    if verdict.infeasible_at_start:
        found.append("No action at any step could have reached the goal in the turns that were given.")
    if verdict.fallback:
        found.append("No single action was fatal; the log ended while the goal was still within reach.")
    if verdict.witness:
        found.append(f"A plan that still worked from step {step} begins with: {verdict.witness[0]}.")
    if good_actions(request):
        found.append(f"Actions at step {step} that kept the goal within reach: {', '.join(good_actions(request))}.")
    return found


def _action(request: GuidanceRequest) -> str:
    episode, step = request.episode, request.verdict.pivot_step
    action = episode.actions[step]
    if action == request.profile.unusable_action:
        cut = bool(episode.finish_reasons) and episode.finish_reasons[step] == "length"
        return f"{action} (the reply {'broke off before it held an action' if cut else 'held no usable action'})"
    submission = episode.submission_outcomes[step] if episode.submission_outcomes else None
    if submission not in (None, "ok"):
        return f"{action} (it was not drawn: {submission})"
    moved = episode.infos[step].get("moved")
    return f"{action} (it changed nothing)" if moved is False else action


def _turns(count: int) -> str:
    return f"{count} turn" if count == 1 else f"{count} turns"


def _amounts(unit: str, before: float | None, after: float | None, request: GuidanceRequest) -> list[str]:
    """Say what was needed before and after the pivot, in the certificate's unit."""
    certificate, step = request.verdict.certificate, request.verdict.pivot_step
    if unit == "score":
        scores = {"before the last submission": certificate.raw_before, "of it": certificate.raw_after}
        known = [
            f"{name} {number_text(value, request.decimals)}" for name, value in scores.items() if value is not None
        ]
        return [f"Scores: {', '.join(known)}; the target itself has 1."] if known else []
    if unit == "stages":
        return [
            f"Stages open before step {step}: {before:g}, with {_turns(certificate.budget_before)} left; after it: "
            f"{after:g}, with {_turns(certificate.budget_after)} left."
        ]
    left = f"Turns left before step {step}: {certificate.budget_before}; after it: {certificate.budget_after}."
    if certificate.reachable_after is False:
        needed = "no number of actions is enough"
    else:
        needed = "not known" if after is None else f"{after:g} {unit}"
    was = "out of reach" if before is None else f"{before:g} {unit}"
    return [left, f"Needed before step {step}: {was}; needed after it: {needed}."]
