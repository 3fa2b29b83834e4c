"""Turns that an export shows: the agent's own, replies of sibling rollouts, and those of a certified plan.

A certified plan is a label's witness. Its first turn is the pivot, where the agent's own prompt is stored; the pictures
of the later ones are rendered by executing the plan, and their prompts by the agent's template.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from ...core.errors import StoreError
from ...core.messages import EncodedFrame, PromptMessages
from ...environments.base import EnvProfile, Task, actions_per_turn
from ...environments.turns import HistoryEntry
from ...labeling.episode import FailedEpisode
from ...labeling.replay import DisagreementError, Replayer, Replays
from ...rollouts.parser import answer_text
from ...rollouts.render import render_student
from ...rollouts.replies import action_text, written_reply
from ...solvers.base import TURN_SEPARATOR
from ..store.tables import Rows, steps_by_episode
from .base import LabelledEpisode, LabelledShard
from .trainer import is_plain


@dataclass(frozen=True, slots=True)
class StoredReply:
    """A valid reply of an agent to the same prompt in the same state of the same level."""

    episode_id: str
    t: int
    action: str
    text: str

    def origin(self, each: LabelledEpisode) -> str:
        """Return ``own`` for a reply of this episode, ``sibling`` for one of another rollout."""
        return "own" if self.episode_id == each.episode["episode_id"] else "sibling"


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A turn of a certified plan."""

    t: int
    action: str
    """Normalised action of the plan."""
    spoken: str
    """The action as the agent writes it."""
    need: int
    """Turns of the plan from here to the goal."""
    turns_left: int
    """Turns left before the action."""
    prompt: PromptMessages
    images: Sequence[bytes]
    """Pictures of the prompt, encoded."""
    state: str

    def template(self, tag: str) -> str:
        """Return a reply with the action and a thought that the certificate proves."""
        turns = f"{self.need} turn{'s' * (self.need > 1)}"
        thought = f"The goal takes {turns} from here, and {self.turns_left} are left. The next action is {self.spoken}."
        return written_reply(thought, self.spoken, tag)


class ShardTurns:
    """The turns of one shard; the owner closes its environments with ``with``."""

    def __init__(self, shard: LabelledShard) -> None:
        """Read nothing yet."""
        self._shard = shard
        self._env = shard.store.run.env(shard.shard.env)
        self._replays = Replays()

    def __enter__(self) -> "ShardTurns":
        """Return the turns."""
        self._replays.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Close the environments."""
        self._replays.__exit__(*error)

    @property
    def tag(self) -> str:
        """Name of the answer tag."""
        return self._env.type.profile.answer_tag

    @cached_property
    def steps(self) -> dict[str, Rows]:
        """Rows of the table ``steps`` by episode."""
        return steps_by_episode(self._shard.steps.to_pylist())

    @cached_property
    def _replies(self) -> dict[tuple[str, str, str | None], list[StoredReply]]:
        """Valid replies of complete episodes by level, prompt and state, in stored order.

        Without those of which a word was dropped: a trainer would learn it as well.
        """
        replies: dict[tuple[str, str, str | None], list[StoredReply]] = {}
        for each in self._shard.episodes():
            has_long_turns = actions_per_turn(json.loads(each.episode["env_config"])) > 1
            for step in each.steps:
                is_whole = not has_long_turns or _names_all(step["response"], self.tag, step["action"])
                if step["action_valid"] and is_plain(step["response"]) and is_whole:
                    key = each.episode["task_id"], step["prompt_hash"], step["state"]
                    reply = StoredReply(step["episode_id"], step["t"], step["action"], step["response"])
                    replies.setdefault(key, []).append(reply)
        return replies

    def reply(
        self, each: LabelledEpisode, t: int, prompt_hash: str, state: str | None, actions: Sequence[str]
    ) -> StoredReply | None:
        """Return an agent's reply to a prompt in a state with one of some actions, or None.

        It is the first of another rollout, else the first of this rollout at a step other than ``t``: an agent that
        returns to a state gets the same prompt again.
        """
        replies = self._replies.get((each.episode["task_id"], prompt_hash, state), [])
        own, fitting = each.episode["episode_id"], [reply for reply in replies if reply.action in actions]
        others = [reply for reply in fitting if reply.episode_id != own]
        return next(iter(others or [reply for reply in fitting if reply.t != t]), None)

    def stored_prompt(self, step: Mapping[str, Any]) -> PromptMessages:
        """Return the prompt of a stored step.

        Raises:
            StoreError: the prompt is not stored.
        """
        name = step["prompt_hash"]
        if name not in self._shard.prompts:
            raise StoreError(f"the prompt {name!r} of a step is not stored; restore the store from a copy")
        template = self._env.prompt
        return PromptMessages(name, template.template, template.version, tuple(json.loads(self._shard.prompts[name])))

    def spoken(self, each: LabelledEpisode, actions: Sequence[str]) -> list[str]:
        """Return actions as the agent writes them."""
        replayer = self._replayer(self._shard.failures[each.episode["episode_id"]])
        return [action_text(action, replayer.parse_action) for action in actions]

    def plan(self, each: LabelledEpisode, most: int | None = None) -> Iterator[PlannedTurn]:
        """Yield the turns of the witness of a labelled failure, at most so many; none without a witness.

        Raises:
            StoreError: the stored episode cannot be executed again, or its plan does not reach the goal.
        """
        label = each.label
        if label is None or not label["witness"]:
            return
        failure, plan, pivot = self._shard.failures[each.episode["episode_id"]], label["witness"], label["pivot_step"]
        replayer = self._replayer(failure)
        try:
            made = replayer.turns_of_plan(failure, pivot, plan)
        except DisagreementError as error:
            raise StoreError(
                f"{failure.episode_id}: its plan cannot be executed again ({error}); see what is wrong with: "
                "pivot verify"
            ) from error
        frames, history = dict[str, bytes](), self._history(failure, pivot)
        for place, (action, (picture, observation, state)) in enumerate(zip(plan, made, strict=True)):
            t = pivot + place
            prompt = self._prompt(each, failure, t, picture, observation, history, stored=place == 0)
            frames[picture.frame_id] = picture.image
            names = [part["frame_id"] for message in prompt.messages for part in pictures_of(message)]
            images = [frames.get(name) or each.frames.encoded(name) for name in names]
            spoken = action_text(action, replayer.parse_action)
            left = failure.horizon - t
            yield PlannedTurn(t, action, spoken, len(plan) - place, left, prompt, images, state)
            history.append(HistoryEntry(t + 1, action, picture.frame_id))
            if most is not None and place + 1 == most:
                return

    def _replayer(self, failure: FailedEpisode) -> Replayer:
        try:
            return self._replays.of(failure)
        except DisagreementError as error:
            raise StoreError(f"{failure.episode_id}: {error}; see what is wrong with: pivot verify") from error

    @staticmethod
    def _history(failure: FailedEpisode, pivot: int) -> list[HistoryEntry]:
        return [HistoryEntry(t + 1, failure.actions[t], failure.frame_ids[t]) for t in range(pivot)]

    def _prompt(
        self,
        each: LabelledEpisode,
        failure: FailedEpisode,
        t: int,
        picture: EncodedFrame,
        observation: str,
        history: Sequence[HistoryEntry],
        *,
        stored: bool,
    ) -> PromptMessages:
        if stored:
            return self.stored_prompt(each.steps[t])
        task = Task(**{column.name: each.episode[column.name] for column in fields(Task)})
        profile: EnvProfile = replace(self._env.type.profile, actions_per_turn=actions_per_turn(failure.env_config))
        return render_student(
            self._env.prompt, profile, task, t=t, frame_id=picture.frame_id, history=history, observation=observation
        )


def _names_all(reply: str, tag: str, turn: str) -> bool:
    """Whether each word between the commas of a reply's answer became an action of the turn."""
    return (answer_text(reply, tag) or "").count(",") == turn.count(TURN_SEPARATOR)


def pictures_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the picture parts of a chat message."""
    content = message["content"]
    return [] if isinstance(content, str) else [part for part in content if part["type"] == "image"]
