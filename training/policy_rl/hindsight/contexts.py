"""Arms of Stage II, and the hindsight that each puts into the Teacher's prompt.

``labeling/hindsight.py`` writes the contexts; an arm without one leaves the prompt unchanged, to the last token. A new
arm is an :class:`Arm` that an entry point of the group ``pivot.arms`` names.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

from ....collage import episode_tiles, panel
from ....core import plugins
from ....core.identity import below, derive_seed
from ....core.images import decode
from ....core.messages import EncodedFrame
from ....environments.base import EnvProfile
from ....labeling.hindsight import Hindsight, Part
from ...analyzer import Reading


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
        PluginError: the arm is not registered, or violates its contract.
    """
    return plugins.load("arms", name)


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
    return Hindsight(arm.shows, step, reading.failure_mode, reading.failure_reason, picture, alone, text=arm.text)
