"""Records that teach the start of the study with pictures, from failures of a player that moves at random.

With the Student's prompt an almost careless expert; with the Teacher's, whose hint names the solver's pivot in half of
the records and a uniformly random step in the others, to avoid what was done at the named step, so that nothing but the
hint decides. Questions about the pictures alone teach to see what the Teacher has to compare: without them a model of
this size reads no hint after 60,000 records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pivot.benchmarks.learning.vlm import READINGS, Played, reply_text
from pivot.benchmarks.learning.worlds import FAR, World
from pivot.core.identity import digest
from pivot.core.messages import EncodedFrame, PromptMessages
from pivot.labeling.target import build_target
from pivot.rollouts.base import TaskRollouts
from pivot.solvers.puzzles import ACTIONS
from pivot.training.analyzer import case_of_episode
from pivot.training.encode import Encoder
from pivot.training.policy_rl.hindsight.analysis import UpdateSamples
from pivot.training.policy_rl.levels import Levels
from pivot.training.policy_rl.scoring import Row

EXPERT = 0.02
"""Share of the expert's moves; all others are uniformly random, which alone wins a fifth of the games."""
AVOIDED = 0.02
"""Factor by which the Teacher's lessons lower the probability of the action that a hint names."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One record."""

    kind: str
    """``student``; ``hinted`` and ``other``, the Teacher at the step that the hint names and at other steps; a question
    about pictures: ``cells``, ``panel``, ``moved``, ``same`` or ``different``."""
    row: Row
    target: NDArray[np.float64] | None = None
    """Taught probability of each action, shape (4,); None if the tokens of the row are taught."""


def careless(world: World) -> NDArray[np.float64]:
    """Return the careless expert's probability of each action in each state; shape (states, 4)."""
    best = (world.after == world.after.min(axis=1, keepdims=True)) & (world.after < FAR)
    share = np.where(best.any(axis=1, keepdims=True), best / np.maximum(1, best.sum(axis=1, keepdims=True)), 0.25)
    return (1 - EXPERT) * 0.25 + EXPERT * share


def played_lessons(
    samples: UpdateSamples, rollouts: Sequence[TaskRollouts], world: World, taught: NDArray[np.float64]
) -> Iterator[Lesson]:
    """Yield the records of Student and Teacher turn by turn; the Teacher avoids the action at the hinted step.

    Args:
        samples: prompts of all turns.
        rollouts: the episodes.
        world: the states of their levels.
        taught: probability of each action in each state, shape (states, 4).
    """
    index = {state: place for place, state in enumerate(world.states)}
    steps = {(step.episode_id, step.t): step for task in rollouts for each in task.episodes for step in each.steps}
    for turn in samples.turns:
        step = steps[turn.episode_id, turn.t]
        target = taught[index[str(step.state)]]
        yield Lesson("student", turn.student, target)
        if turn.teacher is None:
            continue
        hinted = samples.hindsight[turn.episode_id].step == turn.t
        if hinted:
            target = target * np.where(np.array(ACTIONS) == step.action, AVOIDED, 1.0)
            target = target / target.sum()
        yield Lesson("hinted" if hinted else "other", turn.teacher, target)


def question(kind: str, *frames: str) -> PromptMessages:
    """Return the prompt of a question about pictures alone."""
    content = [*({"type": "image", "frame_id": name} for name in frames), {"type": "text", "text": READINGS[kind]}]
    messages = ({"role": "user", "content": content},)
    return PromptMessages(digest(messages), f"reading-{kind}", "1", messages)


def player_of(state: str) -> str:
    """Return row and column of the player in a state, two digits."""
    *rows, last = state.splitlines()
    if last.startswith("@ "):
        return last.removeprefix("@ ").replace(" ", "")
    marks = "@+" if any(mark in state for mark in "@+") else "S"
    cells = ((r, c) for r, row in enumerate((*rows, last)) for c, mark in enumerate(row) if mark in marks)
    return "".join(map(str, next(cells)))


def reading_lessons(samples: UpdateSamples, rollouts: Sequence[TaskRollouts], encoder: Encoder) -> Iterator[Lesson]:
    """Yield questions about pictures: cells of a state, players of a panel, whether a picture is a panel's middle one.

    ``moved`` asks for the action that moved something between the middle of a panel and its right.
    """
    steps = {(step.episode_id, step.t): step for task in rollouts for each in task.episodes for step in each.steps}

    def answer(kind: str, prompt: PromptMessages, text: str) -> Lesson:
        return Lesson(kind, Row(prompt, tuple(encoder.reply_tokens(text))))

    for turn in samples.turns:
        step = steps[turn.episode_id, turn.t]
        yield answer("cells", question("cells", step.frame_id), " ".join(str(step.state).splitlines()))
        hint = samples.hindsight.get(turn.episode_id)
        if hint is None or hint.panel is None:
            continue
        same = step.frame_id == steps[turn.episode_id, hint.step].frame_id
        pair = question("match", step.frame_id, hint.panel.frame_id)
        yield answer("same" if same else "different", pair, "yes" if same else "no")
        if hint.step != turn.t:
            continue
        around = [steps.get((turn.episode_id, hint.step + shift)) for shift in (-1, 0, 1)]
        shown = " ".join("no" if each is None else player_of(str(each.state)) for each in around)
        yield answer("panel", question("panel", hint.panel.frame_id), shown)
        after = around[-1]
        if after is not None and after.frame_id != step.frame_id:
            taken = (np.array(ACTIONS) == step.action).astype(float)
            reply = tuple(encoder.reply_tokens(reply_text("up")))
            yield Lesson("moved", Row(question("moved", hint.panel.frame_id), reply), taken)


def analyzer_rows(played: Played, levels: Levels, encoder: Encoder) -> tuple[list[Row], dict[str, EncodedFrame]]:
    """Return the Analyzer's records and their pictures: collage and log of every failure, its label, no guidance."""
    rollouts, failures, _ = played
    images = {key: frame.image for task in rollouts for key, frame in task.frames.items()}
    rows: list[Row] = []
    pictures: dict[str, EncodedFrame] = {}
    for episode in failures.episodes:
        case, reading = case_of_episode(levels.env.profile, episode, images), failures.readings[episode.episode_id]
        named: list[dict[str, Any]] = [
            {**message, "content": [dict(part) for part in message["content"]]} for message in case.messages
        ]
        shown = (part for message in named for part in message["content"] if part["type"] == "image")
        for part, picture in zip(shown, case.images, strict=True):
            part["frame_id"] = picture.frame_id
            pictures[picture.frame_id] = picture
        prompt = PromptMessages(f"analyzer-{episode.episode_id}", "analyzer", "1", tuple(named))
        target = build_target(reading.pivot_step, reading.failure_mode)
        rows.append(Row(prompt, tuple(encoder.reply_tokens(target))))
    return rows, pictures
