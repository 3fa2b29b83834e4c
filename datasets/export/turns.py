"""Turns in an export: the agent's own, replies of other rollouts of the level, and those of a certified plan.

A certified plan is a label's witness. Its first turn is the pivot, where the agent's own prompt is stored; the pictures
of the later ones are rendered by executing the plan, and their prompts by the agent's template.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any

from ...core.errors import StoreError
from ...core.messages import PromptMessages, frames_in
from ...environments.base import EnvProfile, Task, actions_per_turn
from ...environments.turns import HistoryEntry
from ...labeling.episode import FailedEpisode
from ...labeling.replay import DisagreementError, Replayer, Replays
from ...rollouts.base import render_student
from ...rollouts.dialect import Call, Dialect
from ...rollouts.parser import answer_text
from ...rollouts.policies.imported import RECORDED
from ...rollouts.replies import Said, Writer, action_text, written_reply
from ...solvers.base import TURN_SEPARATOR
from ..store.imports import IMPORTS
from ..store.tables import Rows, steps_by_episode
from .base import LabelledEpisode, LabelledShard, is_plain


@dataclass(frozen=True, slots=True)
class StoredReply:
    """A valid reply of an agent to the same prompt in the same state of the same level."""

    episode_id: str
    t: int
    action: str
    said: Said

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
    """The action in the reply grammar of the environment."""
    need: int
    """Turns of the plan from here to the goal."""
    turns_left: int
    """Turns left before the action."""
    prompt: PromptMessages
    images: Sequence[bytes]
    """Pictures of the prompt, encoded."""
    state: str

    def thought(self, spoken: str) -> str:
        """Return a thought that the certificate proves; it names the action in the agent's own words."""
        turns = f"{self.need} turn{'s' * (self.need > 1)}"
        return f"The goal takes {turns} from here, and {self.turns_left} are left. The next action is {spoken}."


class ShardTurns:
    """The turns of one shard; the owner closes its environments with ``with``."""

    def __init__(self, shard: LabelledShard) -> None:
        """Read nothing yet."""
        self._shard = shard
        self._env = shard.store.run.envs[shard.shard.env]
        self._replays = Replays()

    def __enter__(self) -> "ShardTurns":
        """Return the turns."""
        self._replays.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Close the environments."""
        self._replays.__exit__(*error)

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
            for step in each.steps:
                said = self.said(step)
                if (
                    step["action_valid"]
                    and said is not None
                    and is_plain(said.text)
                    and self._is_whole(each, step, said)
                ):
                    key = each.episode["task_id"], step["prompt_hash"], step["state"]
                    reply = StoredReply(step["episode_id"], step["t"], step["action"], said)
                    replies.setdefault(key, []).append(reply)
        return replies

    def _is_whole(self, each: LabelledEpisode, step: Mapping[str, Any], said: Said) -> bool:
        """Whether every word of a reply's answer became an action of the turn."""
        if self._imported is not None:
            return bool(step["prompt_hash"]) and self._writer.names_exactly(said, step["action"])
        if actions_per_turn(json.loads(each.episode["env_config"])) == 1:
            return True
        answer = answer_text(said.text, self._env.type.profile.answer_tag) or ""
        return answer.count(",") == step["action"].count(TURN_SEPARATOR)

    @cached_property
    def _imported(self) -> dict[str, Mapping[str, Any]] | None:
        """Rows of the table ``imports`` by episode; None in a store of rollouts of PIVOT itself."""
        if not self._shard.store.is_imported:
            return None
        columns = ["episode_id", "turn_starts", "calls"]
        rows = self._shard.store.read(IMPORTS, self._shard.shard, columns).to_pylist()
        return {row["episode_id"]: row for row in rows if row["episode_id"] is not None}

    @cached_property
    def _writer(self) -> Writer:
        """Writer in the dialect in which the source of an import was read."""
        options = self._shard.store.audit["options"]
        dialect = Dialect(**{name: value for name, value in options.items() if name in Dialect.model_fields})
        failure = next(iter(self._shard.failures.values()))
        return Writer(dialect, self._env.type.profile.answer_tag, self._replayer(failure).actions)

    def said(self, step: Mapping[str, Any]) -> Said | None:
        """Return the recorded reply of a turn.

        None where an import has none, and for a step that is only one of several actions of a recorded turn.
        """
        if self._imported is None:
            return Said(step["response"])
        row, t = self._imported[step["episode_id"]], step["t"]
        starts = {*row["turn_starts"], len(self.steps[step["episode_id"]])}
        if not {t, t + 1} <= starts:
            return None
        calls = json.loads(row["calls"])[row["turn_starts"].index(t)] if row["calls"] else ()
        said = Said(step["response"], tuple(Call(call["name"], call["arguments"]) for call in calls))
        return said if said.text.strip() or said.calls else None

    def written(self, each: LabelledEpisode, step: Mapping[str, Any], action: str, turn: PlannedTurn) -> Said | None:
        """Return a reply to the prompt of a step with an action of a plan, or the action that the agent took.

        In an import it is in the dialect of the source, like the recorded reply of the step, or, if that names no
        action, like the first reply that does; without a thought where the step has no reply. None if the dialect
        cannot be written.
        """
        if self._imported is None:
            return Said(written_reply(turn.thought(turn.spoken), turn.spoken, self._env.type.profile.answer_tag))
        own = self.said(step)
        if own is not None and self._writer.names_exactly(own, step["action"]):
            example, shown = own, step["action"]
        else:
            example, shown = self._example(each)
        thought = None if own is None else turn.thought(self._writer.spelled(turn.action))
        return self._writer.written(action, example, shown, thought)

    def _example(self, each: LabelledEpisode) -> tuple[Said | None, str]:
        """Return the first reply of the episode, or of the shard, that names its actions."""
        for step in chain(each.steps, *self.steps.values()):
            said = self.said(step)
            if said is not None and step["action_valid"] and self._writer.names_exactly(said, step["action"]):
                return said, step["action"]
        return None, ""

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
        kind = RECORDED if self._imported is not None else (template.template, template.version)
        return PromptMessages(name, *kind, tuple(json.loads(self._shard.prompts[name])))

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
        if label is None or not label["witness"] or not each.steps[label["pivot_step"]]["prompt_hash"]:
            return
        failure, plan, pivot = self._shard.failures[each.episode["episode_id"]], label["witness"], label["pivot_step"]
        if self._imported is not None:  # the prompt after another action is unknown
            most = 1
        replayer = self._replayer(failure)
        try:
            made = replayer.turns_of_plan(failure, pivot, plan)
        except DisagreementError as error:
            raise StoreError(
                f"{failure.episode_id}: its plan cannot be executed again ({error}); see what is wrong with: "
                "pivot verify"
            ) from error
        frames = dict[str, bytes]()
        history = [HistoryEntry(t + 1, failure.actions[t], failure.frame_ids[t]) for t in range(pivot)]
        task = Task(**{column.name: each.episode[column.name] for column in fields(Task)})
        profile: EnvProfile = replace(self._env.type.profile, actions_per_turn=actions_per_turn(failure.env_config))
        for place, (action, (picture, observation, state)) in enumerate(zip(plan, made, strict=True)):
            t = pivot + place
            if place == 0:
                prompt = self.stored_prompt(each.steps[t])
            else:
                template, name = self._env.prompt, picture.frame_id
                prompt = render_student(
                    template, profile, task, t=t, frame_id=name, history=history, observation=observation
                )
            frames[picture.frame_id] = picture.image
            images = [frames.get(name) or each.frames.encoded(name) for name in frames_in(prompt.messages)]
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
