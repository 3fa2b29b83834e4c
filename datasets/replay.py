"""Policies and teachers that repeat what a store holds, so that everything else can be derived anew around them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import PolicyError
from ..labeling.base import Guidance, GuidanceRequest, Teacher
from ..rollouts.base import Policy, Reply, Turn
from .tables import Rows


class StoredReplies(Policy):
    """Gives the stored reply of every turn, under the name and config of the policy that gave it."""

    def __init__(self, policy: Policy, steps: Mapping[str, Rows]) -> None:
        """Repeat the replies in ``steps``, the step rows by episode."""
        self.name = policy.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self._config = policy.config
        self._steps = steps

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
        if turn.t >= len(steps):
            raise PolicyError(f"the store holds no reply of episode {turn.episode_id} at step {turn.t}")
        row = steps[turn.t]
        tokens, logprobs = row["response_token_ids"], row["response_logprobs"]
        return Reply(
            text=row["response"],
            finish_reason=row["finish_reason"],
            token_ids=None if tokens is None else tuple(tokens),
            logprobs=None if logprobs is None else tuple(logprobs),
        )


class StoredGuidance(Teacher):
    """Gives the stored guidance of every label, under the name and config of the teacher that wrote it."""

    def __init__(self, teacher: Teacher, texts: Mapping[str, str]) -> None:
        """Repeat ``texts``, the guidance by episode."""
        self.name = teacher.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self.is_stand_in = teacher.is_stand_in  # pyright: ignore[reportAttributeAccessIssue]
        self._config = teacher.config
        self._texts = texts

    @property
    def config(self) -> dict[str, Any]:
        """The config of the teacher that wrote the texts."""
        return self._config

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Give the stored texts, in order."""
        return [Guidance(self._texts.get(request.episode.episode_id, "")) for request in requests]
