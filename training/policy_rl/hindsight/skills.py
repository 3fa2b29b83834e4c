"""Skills of the arm ``sdar``: a frozen larger model sees all frames of an episode and writes advice in its own words.

The skill names no pivot, and successes have one, too. It goes to the Teacher, which is the same frozen model and scores
all tokens of the episode.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ....core.errors import TrainingError
from ....core.identity import derive_seed, digest
from ....core.messages import EncodedFrame
from ....environments.base import EnvProfile
from ....models.base import ChatRequest, Sampling
from ....models.transformers.model import Engine
from ....rollouts.base import Episode
from ....rollouts.ids import request_id
from ...encode import Encoder

VERSION = "1"
"""Version of the prompt's text."""
SKILL_TEMPERATURE = 0.0

_ASK = (
    "Write the skill that someone would need to do well in a situation like this one: what to look for, what to do and "
    "what to leave. Two or three sentences, no list, nothing about this text."
)


def skill_messages(profile: EnvProfile, episode: Episode) -> list[dict[str, Any]]:
    """Return the prompt: the task, each frame as a picture of its own with the action after it, and the question."""
    content: list[dict[str, Any]] = [
        {"type": "text", "text": f"{profile.task_description}\n{episode.instruction}\nAn attempt, step by step:"}
    ]
    for step in episode.steps:
        content.append({"type": "image", "frame_id": step.frame_id})
        content.append({"type": "text", "text": f"step {step.t}: {step.action}"})
    ending = "It succeeded." if episode.success else "It did not succeed."
    content.append({"type": "image", "frame_id": episode.steps[-1].next_frame_id})
    content.append({"type": "text", "text": f"{ending}\n{_ASK}"})
    return [{"role": "user", "content": content}]


def write_skills(
    profile: EnvProfile,
    episodes: Sequence[Episode],
    frames: Mapping[str, EncodedFrame],
    engine: Engine,
    *,
    batch: int,
    max_tokens: int,
) -> dict[str, str]:
    """Return the skill of each episode by its id; empty if the request failed."""
    requests = []
    for episode in episodes:
        messages = skill_messages(profile, episode)
        name = episode.episode_id
        requests.append(
            ChatRequest(
                request_id=request_id(name, episode.num_steps - 1, "teacher"),
                episode_id=name,
                t=None,
                role="teacher",
                messages=messages,
                images=frames,
                prompt_hash=digest(messages),
                sampling=Sampling(SKILL_TEMPERATURE, max_tokens=max_tokens),
                seed=derive_seed(name, "skill"),
            )
        )
    answers = [
        answer for first in range(0, len(requests), batch) for answer in engine.answer(requests[first : first + batch])
    ]
    return {
        episode.episode_id: "" if isinstance(answer, Exception) else answer.text
        for episode, answer in zip(episodes, answers, strict=True)
    }


def check_same_tokens(student: Encoder, teacher: Encoder) -> None:
    """Check that Student and Teacher have the same vocabulary of tokens.

    Raises:
        TrainingError: a token has another number, or none, in the Teacher's vocabulary.
    """
    mine, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    different = next((token for token, number in mine.items() if theirs.get(token) != number), None)
    if different is not None:
        raise TrainingError(
            f"the Teacher's tokenizer has no token {different!r} with the Student's number, expected one vocabulary; "
            "choose a Teacher of the Student's family with --teacher-model"
        )
