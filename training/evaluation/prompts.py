"""The prompts of the benchmark: pictures, one log, one question, JSON only; no prompt says how the episode ended."""

from collections.abc import Sequence

from ...collage import TARGET_LABEL
from ...environments.base import EnvProfile
from ...labeling.analyzer import LOG_HEADING, how_to_read, one_line
from ...labeling.domains import domain_of
from .items import Question

TEMPLATE = "2"
"""Version of the texts; a change of it raises the version of the benchmark, too."""

SHAPES: dict[Question, str] = {
    "locate": '{"pivot_step": <integer or null>, "failure_mode": <one word of the list or null>}',
    "safe": '{"safe_action": <one of the offered actions>}',
    "credit": '{"reach": [<one number from 0 to 1 per step>]}',
}
"""Shape of the reply by question."""


def prompt_text(
    profile: EnvProfile,
    question: Question,
    log: str,
    *,
    horizon: int,
    instruction: str,
    action_log: str,
    inside: tuple[int, ...] = (),
    step: int | None = None,
    choices: tuple[str, ...] = (),
    separate: Sequence[str] | None = None,
    tiles: int = 0,
    thoughts: bool = False,
) -> str:
    """Return the text of a question.

    Args:
        profile: description of the environment.
        question: the question.
        log: ``full`` or ``actions``.
        horizon: turns given.
        instruction: goal of the episode; empty if the task says it.
        action_log: compact log, one line per step.
        inside: number of frames inside of each turn; empty for turns of one action.
        step: step of a question ``safe``.
        choices: see :class:`.items.Item`.
        separate: labels of the separate pictures; None for a collage.
        tiles: number of tiles of the collage, of which the separate pictures may leave some out.
        thoughts: whether the log shows the agent's own words.
    """
    steps = len(action_log.splitlines())
    if separate is None:
        reading = how_to_read(profile, steps, inside).replace("one failed episode", "one episode")
    else:
        reading = how_to_read_pictures(profile, separate, tiles)
    task, wish = one_line(profile.task_description), one_line(instruction)
    context = [f"- Task description: {task}"]
    if wish and wish != task:
        context.append(f"- Instruction of this episode: {wish}")
    picture, shows = ("picture", "shows") if separate is None else ("pictures", "show")
    rely = (
        f"Rely on the {picture} as well as on the log."
        if log == "full"
        else f"The log names the actions alone; only the {picture} {shows} their effects."
    )
    words = ["- The field thought holds the agent's own words before its action; they may be wrong."]
    lines = [
        reading,
        "",
        *_asked(profile, question, steps, step, choices),
        f"- {rely}",
        *(words if thoughts else []),
        f"- Steps are counted from 0 to {steps - 1}. No text around the object.",
        "",
        "Shape of the answer:",
        SHAPES[question],
        "",
        "Episode:",
        *context,
        f"- Turns given: {horizon}",
        f"- Number of steps: {steps}",
    ]
    return "\n".join(lines) + LOG_HEADING + action_log


def how_to_read_pictures(profile: EnvProfile, labels: Sequence[str], tiles: int) -> str:
    """Explain separate pictures.

    Args:
        profile: description of the environment.
        labels: labels of the pictures, in order, as tiles of a collage have them.
        tiles: number of tiles of the whole episode.
    """
    text = f"The {len(labels)} images show one episode, in this order: {', '.join(labels)}. "
    if profile.tiles == "outcomes":
        text += (
            f"The image {TARGET_LABEL} is what was to be made. Each other image shows what there was after that step, "
            "drawn from its submission, or left as it was when nothing usable was submitted."
        )
    else:
        text += "Each image is what the agent saw before it acted at that step."
    if any("." in label for label in labels):
        text += " A step may have several actions: the image k.1 follows the first action of step k, and so on."
    if len(labels) < tiles:
        text += f" The whole episode has {tiles} images; the others are not shown."
    return text


def _asked(
    profile: EnvProfile, question: Question, steps: int, step: int | None, choices: tuple[str, ...]
) -> list[str]:
    """Return the question and the first of its constraints."""
    words = domain_of(profile.name)
    if question == "locate":
        meanings = [f"- {mode}: {words.meaning(mode)}".rstrip(": ") for mode in choices]
        return [
            "Decide whether the agent lost the task in this episode, where, and how. Answer with JSON only: a single "
            "object with these two fields.",
            f"1. pivot_step (integer or null): the index of {words.pivot}; null without such a step, because the "
            "episode succeeded or was never lost.",
            "2. failure_mode (string or null): the kind of failure, one word of the list below; null together with "
            "pivot_step.",
            "",
            "Failure modes:",
            *meanings,
            "",
            "Constraints:",
            f"- failure_mode has to be null or exactly one of: {', '.join(choices)}.",
            f"- Valid range of pivot_step: [0, {steps - 1}]",
        ]
    if question == "safe":
        return [
            f"Look at the moment before step {step}. Name one action that the agent could have taken at step {step} so "
            "that the goal could still be reached in the turns that were left afterwards. Answer with JSON only: a "
            "single object with the field safe_action.",
            "",
            "Constraints:",
            f"- safe_action has to be exactly one of: {', '.join(choices)}.",
        ]
    return [
        "Say for every step how probable it is that the goal could still be reached after it in the turns that were "
        "left, with the best possible actions. Answer with JSON only: a single object with the field reach.",
        "",
        "Constraints:",
        f"- reach has to be a list of exactly {steps} numbers from 0 to 1, one per step, in order.",
    ]
