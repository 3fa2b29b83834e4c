"""What the Teacher is told in hindsight: every arm is a row of data, and the words are in one place (spec section 8).

A Teacher prompt is the Student's with a context put into it: a panel of three frames around the pivot step, the failure
mode, the step, guidance. Grid prompts take the panel right after the current picture and the words before the closing
instruction; the others take the words, then the panel, at their end. An arm without a context leaves the prompt as it
is, to the last token.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ....collage import episode_tiles, panel
from ....environments.base import EnvProfile
from ....errors import TrainingError
from ....identity import below, derive_seed, digest
from ....images import decode
from ....labeling.domains import domain_of
from ....messages import EncodedFrame, PromptMessages
from ....rollouts.base import StudentPrompt
from ...analyzer import Reading

VERSION = "1"
"""Of the Teacher's wording; raised with every change of it."""

Part = Literal["panel", "mode", "pivot", "guidance", "skill"]


@dataclass(frozen=True, slots=True)
class Arm:
    """Who names the pivot, what of it the Teacher is shown, and whether it teaches."""

    name: str
    summary: str
    """Half a sentence for ``--help`` and the docs."""
    shows: tuple[Part, ...] = ()
    analyzer: Literal["nobody", "model", "solver", "frozen"] = "model"
    """Who says what the Teacher is told: the trained model as the Analyzer, the solver, or a frozen larger model, which
    is then the Teacher, too, and is asked about every episode."""
    distils: bool = True
    """Whether a Teacher scores the failures and its term is part of the loss."""
    random_step: bool = False
    """Whether panel and step are those of a random other step than the one named."""
    starts_from: Literal["an instruct checkpoint", "a Stage I checkpoint"] = "a Stage I checkpoint"


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
        Arm("m", "the Teacher is told the failure mode", ("mode",)),
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
        Arm("empty", "control: the Teacher sees the Student's prompt", analyzer="nobody"),
        Arm("analyzer_only", "control: the Analyzer runs and nothing is distilled", distils=False),
    )
}
DEFAULT_ARM = "mp"


def arm_of(name: str) -> Arm:
    """Return an arm by its name.

    Raises:
        TrainingError: there is none.
    """
    if name not in ARMS:
        raise TrainingError(f"unknown arm {name!r}, expected one of: {', '.join(ARMS)}; choose with --arm")
    return ARMS[name]


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What is known about a failed episode afterwards."""

    parts: tuple[Part, ...]
    step: int
    """That the panel shows and the words name, 0-based."""
    mode: str
    guidance: str
    panel: EncodedFrame | None
    """None where the arm shows none."""
    no_other_step: bool = False
    """A random step was wanted of an episode that has only one."""


def random_other_step(episode_id: str, step: int, num_steps: int) -> int:
    """Return a step other than ``step``, uniform, a function of the episode; itself where it is the only one."""
    if num_steps == 1:
        return step
    drawn = below(random.Random(derive_seed(episode_id, "random step")), num_steps - 1)
    return drawn + (drawn >= step)


def hindsight_of(
    arm: Arm,
    profile: EnvProfile,
    episode_id: str,
    frame_ids: Sequence[str],
    named: Reading,
    frames: Mapping[str, bytes],
) -> Hindsight:
    """Return what an arm tells about an episode.

    Args:
        arm: what it shows.
        profile: of the environment.
        episode_id: decides the random step.
        frame_ids: the frame before each of T actions, then the terminal one.
        named: pivot step, mode and guidance.
        frames: encoded pictures by frame id.
    """
    steps = episode_tiles(profile.tiles, frame_ids).steps
    step = random_other_step(episode_id, named.pivot_step, len(steps)) if arm.random_step else named.pivot_step
    picture = None
    if "panel" in arm.shows:
        picture = EncodedFrame.encode(panel([decode(frames[key]) for key in steps], step))
    alone = arm.random_step and len(steps) == 1
    return Hindsight(arm.shows, step, named.failure_mode, named.failure_reason, picture, alone)


def hindsight_text(env: str, known: Hindsight) -> str:
    """Return the words of a context, a line for each part; guidance that is empty gives none."""
    if "skill" in known.parts:
        return f"A note by someone who has seen this whole attempt:\n{known.guidance.strip()}"
    lines = ["What became clear after this attempt had failed; nobody knew it while acting:"]
    if "panel" in known.parts:
        lines.append(
            "- The last picture shows three moments of the attempt side by side, each under the number of its step, "
            "counted from 0. It went wrong at the one in the middle. A black tile stands for no moment."
        )
    if "mode" in known.parts:
        meaning = domain_of(env).meaning(known.mode)
        lines.append(f"- Kind of failure: {known.mode}" + (f" ({meaning})" if meaning else "") + ".")
    if "pivot" in known.parts:
        lines.append(f"- The step that lost it: step {known.step}, counted from 0.")
    if "guidance" in known.parts and known.guidance.strip():
        lines.append(f"- Advice: {' '.join(known.guidance.split())}")
    return "\n".join(lines)


def teacher_prompt(
    student: PromptMessages, template: StudentPrompt, env: str, known: Hindsight | None
) -> PromptMessages:
    """Return the Teacher's prompt of one turn: the Student's with the context in its place.

    Args:
        student: what the Student was shown.
        template: the environment's Student prompt, which says where the context goes.
        env: the environment.
        known: None, or one that shows nothing, leaves the prompt as it is.
    """
    if known is None or not known.parts:
        return student
    *before, last = student.messages
    words = {"type": "text", "text": hindsight_text(env, known)}
    pictures = [] if known.panel is None else [{"type": "image", "frame_id": known.panel.frame_id}]
    content: list[dict[str, Any]] = list(last["content"])
    if template.hindsight == "before_closing":
        content = [*content[:-1], *pictures, words, content[-1]]
    else:
        content = [*content, words, *pictures]
    messages = (*before, {**last, "content": content})
    return PromptMessages(digest(messages), f"teacher.{env}", f"{student.version}.{VERSION}", messages)
