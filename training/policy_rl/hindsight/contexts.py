"""Arms of Stage II, and the hindsight that each puts into the Teacher's prompt (spec section 8).

A Teacher prompt is the Student's prompt with a context: a panel of three frames around the pivot step, the failure
mode, the step, guidance. Grid prompts take the panel right after the current picture and the text before the closing
instruction; the others take the text, then the panel, at their end. An arm without a context leaves the prompt
unchanged, to the last token. A new arm is an :class:`Arm` that an entry point of the group ``pivot.arms`` names.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

from .... import plugins
from ....collage import episode_tiles, panel
from ....environments.base import EnvProfile
from ....identity import below, derive_seed, digest
from ....images import decode
from ....labeling.domains import domain_of
from ....messages import EncodedFrame, PromptMessages
from ....rollouts.base import StudentPrompt
from ...analyzer import Reading

VERSION = "1"
"""Version of the context's text, raised with every change of it."""

Part = Literal["panel", "mode", "pivot", "guidance", "skill"]


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm: the source of the pivot step, the content of the Teacher's prompt, and whether it is distilled."""

    name: str
    summary: str
    """Description for the model card and the docs, half a sentence."""
    shows: tuple[Part, ...] = ()
    analyzer: Literal["nobody", "model", "solver", "frozen"] = "model"
    """Source of the hindsight: the trained model as the Analyzer, the solver, or a frozen larger model, which is then
    the Teacher, too, and analyzes every episode."""
    distils: bool = True
    """Whether a Teacher scores the failures and the loss has a distillation term."""
    corrects: Literal["witness", "preference"] | None = None
    """Loss of certified corrections of the failures; see ``witness_loss`` and ``preference_loss``."""
    random_step: bool = False
    """Whether panel and step are those of a random step other than the pivot."""
    starts_from: Literal["an instruct checkpoint", "a Stage I checkpoint"] = "a Stage I checkpoint"
    text: "Callable[[str, Hindsight], str] | None" = None
    """Returns the text of the context of an environment, in place of :func:`hindsight_text`."""


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(
            "vanilla_grpo",
            "GRPO alone, from the raw checkpoint",
            analyzer="nobody",
            distils=False,
            starts_from="an instruct checkpoint",
        ),
        Arm("sft_grpo", "GRPO alone, from Stage I weights", analyzer="nobody", distils=False),
        Arm("p", "the Teacher sees the panel", ("panel",)),
        Arm("m", "the Teacher sees the failure mode", ("mode",)),
        Arm("mp", "panel, mode and pivot step; the paper's default", ("panel", "mode", "pivot")),
        Arm("mpr", "panel, mode, pivot step and guidance", ("panel", "mode", "pivot", "guidance")),
        Arm("oracle", "as mp, named by the solver: an upper bound", ("panel", "mode", "pivot"), analyzer="solver"),
        Arm(
            "mp_random_r",
            "as mpr, with panel and step of a random other step",
            ("panel", "mode", "pivot", "guidance"),
            random_step=True,
        ),
        Arm(
            "sdar",
            "a frozen larger model writes a skill and scores every episode, failed or not",
            ("skill",),
            analyzer="frozen",
            starts_from="an instruct checkpoint",
        ),
        Arm(
            "witness",
            "extension: GRPO, and supervised learning on a certified action of each failure",
            analyzer="nobody",
            distils=False,
            corrects="witness",
        ),
        Arm(
            "dpo_pivot",
            "extension: GRPO, and a preference for a certified action over the reply of each failure",
            analyzer="nobody",
            distils=False,
            corrects="preference",
        ),
        Arm("empty", "control: the Teacher sees the Student's prompt", analyzer="nobody"),
        Arm("analyzer_only", "control: the Analyzer runs and nothing is distilled", distils=False),
    )
}
"""PIVOT's own arms, by name."""
REGISTERED = SimpleNamespace(**ARMS)
"""The same arms, as entry points name them."""
DEFAULT_ARM = "mp"


def arm_of(name: str) -> Arm:
    """Return the arm with a name.

    Raises:
        PluginError: it is not registered, or does not fit its contract.
    """
    return plugins.load("arms", name)


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Hindsight about an episode, as the Teacher's prompt shows it."""

    parts: tuple[Part, ...]
    step: int
    """Step that the panel shows and the text names, 0-based."""
    mode: str
    guidance: str
    panel: EncodedFrame | None
    """Picture of three frames; None in arms without a panel."""
    no_other_step: bool = False
    """Whether the arm needs a random other step and the episode has only one step."""
    text: Callable[[str, "Hindsight"], str] | None = None
    """Text of the arm, in place of the usual one."""


def random_other_step(episode_id: str, step: int, num_steps: int) -> int:
    """Return a random step other than ``step``, a function of the episode id; ``step`` if there is no other."""
    if num_steps == 1:
        return step
    sampled = below(random.Random(derive_seed(episode_id, "random step")), num_steps - 1)
    return sampled + (sampled >= step)


def hindsight_of(
    arm: Arm,
    profile: EnvProfile,
    episode_id: str,
    frame_ids: Sequence[str],
    reading: Reading,
    frames: Mapping[str, bytes],
) -> Hindsight:
    """Return the hindsight of an arm about an episode.

    Args:
        arm: the arm.
        profile: profile of the environment.
        episode_id: id of the episode; it decides the random step.
        frame_ids: the frame before each of T actions, then the terminal one.
        reading: pivot step, mode and guidance.
        frames: encoded pictures by frame id.
    """
    steps = episode_tiles(profile.tiles, frame_ids).steps
    step = random_other_step(episode_id, reading.pivot_step, len(steps)) if arm.random_step else reading.pivot_step
    picture = None
    if "panel" in arm.shows:
        picture = EncodedFrame.encode(panel([decode(frames[key]) for key in steps], step))
    alone = arm.random_step and len(steps) == 1
    return Hindsight(arm.shows, step, reading.failure_mode, reading.failure_reason, picture, alone, arm.text)


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
        meaning = domain_of(env).meaning(hindsight.mode)
        lines.append(f"- Kind of failure: {hindsight.mode}" + (f" ({meaning})" if meaning else "") + ".")
    if "pivot" in hindsight.parts:
        lines.append(f"- The step that lost it: step {hindsight.step}, counted from 0.")
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
    if template.hindsight == "before_closing":
        content = [*content[:-1], *pictures, words, content[-1]]
    else:
        content = [*content, words, *pictures]
    messages = (*before, {**last, "content": content})
    return PromptMessages(digest(messages), f"teacher.{env}", f"{student.version}.{VERSION}", messages)
