"""The Analyzer prompt: one collage, one compact log, three fields asked for, JSON only.

The text says how the collage is laid out, what is asked, what each failure mode of the environment means, and what
happened. The rendered messages are plain data in which the collage is named by the ids of its tiles, so their hash says
what the model is shown; for training they become TRL's conversational ``prompt`` and ``completion`` parts.

How much the log tells is a setting: all fields of the environment, from which budgets and distances the pivot can often
be worked out, or the actions alone, so that the pictures decide. It is part of the template's version.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..collage import TARGET_LABEL, episode_tiles, grid_shape
from ..core.identity import digest
from ..core.messages import PromptMessages
from ..core.plugins import Settings
from ..environments.base import EnvProfile, actions_per_turn
from .action_log import FLOAT_DECIMALS, LogDetail, action_log
from .domains import Domain, domain_of
from .episode import FailedEpisode
from .target import FIELDS, Vocabulary, target_modes

VERSIONS: Mapping[LogDetail, str] = {"full": "2", "actions": "2+actions"}
"""Version of the template by the kind of log; any change of its text, of the wording tables or of the log raises it."""

LOG_HEADING = "\n- Compact action log:\n"
"""Occurs once in every prompt, because no earlier text can contain a line break; the log follows it."""


def one_line(text: str) -> str:
    """Return the text without line breaks and double spaces."""
    return " ".join(text.split())


def how_to_read(profile: EnvProfile, num_steps: int, inside: Sequence[int] = ()) -> str:
    """Explain how to read the collage; ``inside`` has the number of frames within each turn."""
    tiles = episode_tiles(profile.tiles, range(num_steps + 1), [range(count) for count in inside])
    columns, rows = grid_shape(len(tiles.frames))
    last = num_steps - 1
    grid = (
        f"The image shows one failed episode as a {columns}x{rows} grid (columns x rows), read row by row from the "
        f"top left."
    )
    if profile.tiles == "outcomes":
        return (
            f"{grid} The first tile, labelled {TARGET_LABEL}, is what was to be made. The tiles after it are labelled "
            f"step 0 to step {last}: each shows what there was after that step, drawn from its submission, or left as "
            f"it was when nothing usable was submitted. The log line `step k` belongs to the tile labelled step k, and "
            f"no step to the tile {TARGET_LABEL}."
        )
    text = (
        f"{grid} Each tile is what the agent saw before it acted, and the strip above it carries the index of that "
        f"step; the tiles are labelled 0 to {last}. The log line `step k` belongs to the tile labelled k."
    )
    if any(inside):
        text += " A step may have several actions: the tile k.1 follows the first action of step k, and so on."
    return text


_RELY = {
    "full": "Rely on the pictures as well as on the log; neither is enough alone.",
    "actions": "The log names the actions alone: what came of them, only the pictures show.",
}


@lru_cache(maxsize=4096)
def _opening(
    profile: EnvProfile,
    words: Domain,
    num_steps: int,
    horizon: int,
    instruction: str,
    vocabulary: Vocabulary,
    log: LogDetail,
    most: int,
    inside: tuple[int, ...] = (),
) -> str:
    """Everything above the log: equal for episodes of one length, budget and instruction."""
    last = num_steps - 1
    modes = target_modes(profile, vocabulary)
    meanings = [f"- {each}: {meaning}" if (meaning := words.meaning(each)) else f"- {each}" for each in modes]
    step, mode, reason = FIELDS
    task = one_line(profile.task_description)
    instruction = one_line(instruction)
    context = [f"- Task description: {task}"]
    if instruction and instruction != task:
        context.append(f"- Instruction of this episode: {instruction}")
    lines = [
        how_to_read(profile, num_steps, inside),
        "",
        "Work out where this episode was lost and why. Answer with JSON only: a single object with these three fields.",
        f"1. {step} (integer): the index of {words.pivot}.",
        f"2. {mode} (string): the kind of failure, one word of the list below.",
        f"3. {reason} (string): first what to stay away from in a situation like this and the signs that announce it, "
        f"then one short command that tells the agent what to do at {step}. Advice for the next attempt, not a report.",
        "",
        "Constraints:",
        f"- {_RELY[log]}",
        f"- Steps are counted from 0. {step} has to be an integer from 0 to {last}, the label of a tile.",
        # If only the last step can be the pivot, a sentence that all steps are alike would contradict the advice.
        "- Decide from this episode alone"
        + ("." if profile.tiles == "outcomes" else "; no index is more likely than another."),
        f"- {words.advice}" + (f" {words.log_advice}" if log == "full" and words.log_advice else ""),
        f"- {mode} has to be exactly one of: {', '.join(modes)}.",
        f"- No other fields than {step}, {mode} and {reason}, and no text around the object.",
        "",
        "Failure modes:",
        *meanings,
        "",
        "Shape of the answer:",
        f'{{"{step}": <integer>, "{mode}": <one word of the list>, "{reason}": <text>}}',
        "",
        "Episode:",
        *context,
        "- episode_success: failure",
        f"- Turns given: {horizon}",
        *([f"- Actions per turn: up to {most}"] if most > 1 else []),
        f"- Number of steps: {num_steps}",
        f"- Valid range of {step}: [0, {last}]",
    ]
    return "\n".join(lines) + LOG_HEADING


def analyzer_text(
    profile: EnvProfile,
    episode: FailedEpisode,
    vocabulary: Vocabulary = "certificate",
    log: LogDetail = "full",
    decimals: int = FLOAT_DECIMALS,
    settings: Settings | None = None,
) -> str:
    """Return the text part of the prompt; the episode has at least one step.

    Args:
        profile: what is known about the environment.
        episode: what happened.
        vocabulary: whose words for failure modes the answer is to use.
        log: what the log shows of each step.
        decimals: how many of a measurement it shows.
        settings: those of the solver that labels the episode; the default ones if missing.
    """
    inside = tuple(map(len, episode.inside))
    words, most = domain_of(profile.name, settings, episode.env_config), actions_per_turn(episode.env_config)
    length, horizon, instruction = episode.num_steps, episode.horizon, episode.instruction
    opening = _opening(profile, words, length, horizon, instruction, vocabulary, log, most, inside)
    fields = profile.log_fields if log == "full" else ()
    return opening + action_log(fields, episode.actions, episode.infos, decimals)


def analyzer_prompt(
    profile: EnvProfile,
    episode: FailedEpisode,
    vocabulary: Vocabulary = "certificate",
    log: LogDetail = "full",
    decimals: int = FLOAT_DECIMALS,
    settings: Settings | None = None,
) -> PromptMessages:
    """Render the Analyzer prompt of an episode: the collage, named by the ids of its tiles, then the text."""
    tiles = list(episode_tiles(profile.tiles, episode.frame_ids, episode.inside).frames)
    content = [
        {"type": "image", "collage_of": tiles},
        {"type": "text", "text": analyzer_text(profile, episode, vocabulary, log, decimals, settings)},
    ]
    messages: tuple[dict[str, Any], ...] = ({"role": "user", "content": content},)
    return PromptMessages(digest(messages), f"analyzer.{profile.name}", VERSIONS[log], messages)


def shown_log(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the compact log that the messages of a stored Analyzer prompt show."""
    return messages[0]["content"][-1]["text"].partition(LOG_HEADING)[2]


def shown_frames(prompt: PromptMessages) -> tuple[str, ...]:
    """Return the ids of the frames in the prompt's collage, in order."""
    return tuple(prompt.messages[0]["content"][0]["collage_of"])
