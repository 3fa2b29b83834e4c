"""Hindsight about a failed episode, in the form that a Teacher's prompt shows.

A Teacher prompt is the Student's prompt with a context: a panel of three frames around the pivot step, the failure
mode, the step, a plan that still worked, guidance. Grid prompts take the panel right after the current picture and the
text before the closing instruction; the others take the text, then the panel, at their end.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..core.identity import digest
from ..core.messages import EncodedFrame, PromptMessages
from ..environments.turns import StudentPrompt
from .domains import Domain, domain_of

VERSION = "1"
"""Version of the context's text, raised with every change of it."""

Part = Literal["panel", "mode", "pivot", "plan", "guidance", "skill"]


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Hindsight about an episode in the Teacher's prompt."""

    parts: tuple[Part, ...]
    step: int
    """Step that the panel shows and the text names, 0-based."""
    mode: str
    guidance: str
    panel: EncodedFrame | None
    """Picture of three frames; None in arms without a panel."""
    no_other_step: bool = False
    """Whether the arm needs a random other step and the episode has only one step."""
    plan: tuple[str, ...] = ()
    """Actions of a plan that still worked from the step, as the agent would write them; for the part ``plan``."""
    text: Callable[[str, "Hindsight"], str] | None = None
    """Text of an arm of another package, in place of the usual one."""
    domain: Domain | None = None
    """Domain of the label, for the meaning of the mode; that of the environment's default settings if missing."""


def hindsight_text(env: str, hindsight: Hindsight) -> str:
    """Return the text of a context, one line per part; empty guidance has no line."""
    if hindsight.text is not None:
        return hindsight.text(env, replace(hindsight, text=None))
    if "skill" in hindsight.parts:
        return f"A note by someone who has seen this whole attempt:\n{hindsight.guidance.strip()}"
    lines = ["What became clear after this attempt had failed; nobody knew it while acting:"]
    if "panel" in hindsight.parts:
        lines.append(
            "- The last picture shows three moments of the attempt side by side, each under the number of its step, "
            "counted from 0. It went wrong at the one in the middle. A black tile stands for no moment."
        )
    if "mode" in hindsight.parts:
        meaning = (hindsight.domain or domain_of(env)).meaning(hindsight.mode)
        lines.append(f"- Kind of failure: {hindsight.mode}" + (f" ({meaning})" if meaning else "") + ".")
    if "pivot" in hindsight.parts:
        lines.append(f"- The step that lost it: step {hindsight.step}, counted from 0.")
    if "plan" in hindsight.parts and hindsight.plan:
        lines.append(f"- Actions that still reached the goal from there: {', then '.join(hindsight.plan)}.")
    if "guidance" in hindsight.parts and hindsight.guidance.strip():
        lines.append(f"- Advice: {' '.join(hindsight.guidance.split())}")
    return "\n".join(lines)


def teacher_prompt(
    student: PromptMessages, template: StudentPrompt, env: str, hindsight: Hindsight | None
) -> PromptMessages:
    """Return the Teacher's prompt of one turn: the Student's prompt with the context.

    Args:
        student: prompt of the Student.
        template: the environment's Student prompt, which decides where the context goes.
        env: name of the environment.
        hindsight: the context; None, or one without parts, leaves the prompt unchanged.
    """
    if hindsight is None or not hindsight.parts:
        return student
    *before, last = student.messages
    words = {"type": "text", "text": hindsight_text(env, hindsight)}
    pictures = [] if hindsight.panel is None else [{"type": "image", "frame_id": hindsight.panel.frame_id}]
    content: list[dict[str, Any]] = list(last["content"])
    if template.hindsight == "before_closing" and student.template == template.template:
        content = [*content[:-1], *pictures, words, content[-1]]
    else:
        content = [*content, words, *pictures]
    messages = (*before, {**last, "content": content})
    return PromptMessages(digest(messages), f"teacher.{env}", f"{student.version}.{VERSION}", messages)
