"""The prompts of the benchmark: one collage, one log, one question, JSON only; no prompt says how the episode ended."""

from ...environments.base import EnvProfile
from ...labeling.analyzer import LOG_HEADING, how_to_read, one_line
from ...labeling.domains import domain_of
from .items import Question

TEMPLATE = "1"
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
    """
    steps = len(action_log.splitlines())
    reading = how_to_read(profile, steps, inside).replace("one failed episode", "one episode")
    task, wish = one_line(profile.task_description), one_line(instruction)
    context = [f"- Task description: {task}"]
    if wish and wish != task:
        context.append(f"- Instruction of this episode: {wish}")
    rely = (
        "Rely on the picture as well as on the log."
        if log == "full"
        else "The log names the actions alone; only the picture shows their effects."
    )
    lines = [
        reading,
        "",
        *_asked(profile, question, steps, step, choices),
        f"- {rely}",
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
