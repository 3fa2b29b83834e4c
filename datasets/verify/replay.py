"""A run with the stored replies and guidance, from which everything else is recomputed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...core.errors import PolicyError, StoreError
from ...core.identity import digest
from ...core.images import decode, frame_id
from ...core.messages import EncodedFrame, PromptMessages, frames_in
from ...core.plugins import Settings
from ...core.records import from_row
from ...environments.base import ParsedAction
from ...environments.turns import ParsedReply, Reply, ReplyOutcome, Turn
from ...labeling.base import GuidanceWriter
from ...rollouts.base import EndOfLogError, Policy
from ..store.config import Shard
from ..store.guidance import StoredGuidance, stored_guidance
from ..store.run import Run
from ..store.schema import EPISODES, FRAMES, PROMPTS, STEPS, TableSchema
from ..store.store import Store
from ..store.tables import Rows, steps_by_episode


class StoredReplies(Policy):
    """Returns the stored reply of every turn, under the name and config of the policy that gave it."""

    config_type = Settings

    def __init__(self, policy: Policy, config: dict[str, Any], stored: Mapping[TableSchema, pa.Table]) -> None:
        """Repeat the replies and, for an import, the prompts in ``stored``, of a policy with the stored ``config``."""
        self.name = policy.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self.plays = policy.plays  # pyright: ignore[reportAttributeAccessIssue]
        self._config = config
        self._steps = steps_by_episode(stored[STEPS].to_pylist())
        tables = (
            {}
            if self.plays
            else {schema: stored[schema].to_pylist() for schema in (PROMPTS, FRAMES) if schema in stored}
        )
        self._prompts = {row["prompt_hash"]: from_row(PromptMessages, row) for row in tables.get(PROMPTS, ())}
        self._frames = {row["frame_id"]: from_row(EncodedFrame, row) for row in tables.get(FRAMES, ())}

    @property
    def config(self) -> dict[str, Any]:
        """The config of the policy that gave the replies."""
        return self._config

    async def reply(self, turn: Turn) -> Reply:
        """Give the stored reply.

        Raises:
            PolicyError: the store has none for this turn.
        """
        steps = self._steps.get(turn.episode_id, [])
        if turn.t >= len(steps) and not self.plays:
            raise EndOfLogError(f"the imported log of {turn.episode_id} ends before step {turn.t}")
        if turn.t >= len(steps):
            raise PolicyError(f"the store holds no reply of episode {turn.episode_id} at step {turn.t}")
        row = steps[turn.t]
        tokens, logprobs = row["response_token_ids"], row["response_logprobs"]
        return Reply(
            text=row["response"],
            finish_reason=row["finish_reason"],
            token_ids=None if tokens is None else tuple(tokens),
            logprobs=None if logprobs is None else tuple(logprobs),
            parsed=None if self.plays else _stored_parse(row),
            **self._shown(row),
        )

    def _shown(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the prompt of an imported turn under the digest of its messages, and its pictures, by their pixels."""
        stored = self._prompts.get(row["prompt_hash"])
        if stored is None:
            return {}
        frames = [self._frames[name] for name in frames_in(stored.messages)]
        pictures = {frame_id(decode(each.image)): each for each in frames}
        return {"prompt": replace(stored, prompt_hash=digest(stored.messages)), "pictures": pictures}


def _stored_parse(row: Mapping[str, Any]) -> ParsedReply:
    """Return how an import parsed a reply, from the stored row."""
    outcome = ReplyOutcome(row["reply_outcome"])
    usable = outcome in (ReplyOutcome.OK, ReplyOutcome.NO_THINK)
    action = ParsedAction(row["action"], row["payload"]) if usable else None
    return ParsedReply(action, bool(row["action_valid"]), outcome)


class ReplayedRun(Run):
    """A run whose models are replaced by their stored words; settings name no path of this machine."""

    def __init__(self, run: Run, policy: Policy | None, writer: GuidanceWriter | None, *, follow: bool) -> None:
        """Copy ``run`` with this policy and writer (None keeps its own); ``follow`` keeps paths of source files."""
        vars(self).update({name: value for name, value in vars(run).items() if name != "run_id"})
        self._policy, self._writer = policy, writer
        if not follow:
            self.envs = {name: replace(env, config=env.config.without_locations()) for name, env in run.envs.items()}

    def policy(self) -> Policy:
        """Return the policy."""
        return self._policy or super().policy()

    def writer(self) -> GuidanceWriter:
        """Return the guidance writer."""
        return self._writer or super().writer()


def replayed(
    store: Store, shard: Shard, stored: Mapping[TableSchema, pa.Table], labels: Rows | None, *, follow: bool
) -> Store:
    """Return the store with a run that repeats the words of models in ``stored``; without ``labels`` no guidance.

    Raises:
        StoreError: the rows name another model than the config, or cannot be read.
    """
    policy, writer = stored_policy(store, stored), None
    if labels is not None and not store.run.writer().is_stand_in:
        text = labels[0]["teacher_config"] if labels else None
        config = {name: value for name, value in json.loads(text or "{}").items() if name != "is_stand_in"}
        writer = StoredGuidance(store.run.writer(), stored_guidance(store, shard, labels), config)
    return Store(store.root, store.config, ReplayedRun(store.run, policy, writer, follow=follow))


def stored_policy(store: Store, stored: Mapping[TableSchema, pa.Table]) -> Policy | None:
    """Return the policy that repeats the stored replies of a model; None for a policy that can be played again.

    Raises:
        StoreError: the rows name another model than the run's config.
    """
    policy = store.run.policy()
    if policy.is_stand_in:
        return None
    texts = dict.fromkeys(stored[EPISODES]["policy_config"].to_pylist())
    unplayed: dict[str, Any] = {} if policy.plays else policy.config  # an import of bounds alone has no episodes
    config: dict[str, Any] = json.loads(next(iter(texts))) if texts else unplayed
    options = {name: value for name, value in store.config.policy.options.items() if value is not None}
    stored_options = {**config, **config.get("sampling", {})}
    wrong = [name for name, value in options.items() if stored_options.get(name, value) != value]
    if wrong:
        raise StoreError(f"episodes name a policy with another {wrong[0]} than run.json")
    return StoredReplies(policy, config, stored)
