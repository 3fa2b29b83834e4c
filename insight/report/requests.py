"""Requests to models, rebuilt from stored prompts, replies and calls.

A page holds every text once, in ``texts``: the prompts of an episode's steps differ in a few words. A text part of a
message is an index into that list, an image part names a picture of the site.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...core.identity import derive_seed
from ...core.messages import PromptMessages
from ...datasets.store.config import Shard
from ...datasets.store.schema import CALLS, PROMPTS
from ...datasets.store.store import Store
from ...environments.turns import Turn
from ...models.openai.fields import RENAMED
from ...models.openai.wire import RequestEncoder
from ...rollouts.policies import ModelPolicy
from .plain import parsed, plain

Record = dict[str, Any]

_CALL_COLUMNS = [name for name in CALLS.names if name != "episode_id"]


class Texts:
    """The distinct texts of a page."""

    def __init__(self) -> None:
        """Start without texts."""
        self._indices: dict[str, int] = {}

    def index(self, text: str) -> int:
        """Return the index of a text, added if it is new."""
        return self._indices.setdefault(text, len(self._indices))

    def all(self) -> list[str]:
        """Return the texts in order."""
        return list(self._indices)


def shown_messages(
    messages: Any, texts: Texts, pictures: Mapping[str, str], collage: str | None = None
) -> list[Record]:
    """Return chat messages in which texts are indices and pictures are paths.

    Args:
        messages: stored messages; anything else becomes one text.
        texts: of the page.
        pictures: paths by frame id.
        collage: path of the picture that the messages name by its tiles.
    """
    if not isinstance(messages, list):
        return [{"role": "", "parts": [{"text": texts.index(str(messages))}]}]
    shown: list[Record] = []
    for message in cast(list[Any], messages):
        content = message.get("content") if isinstance(message, dict) else message
        parts: list[Record] = []
        for part in content if isinstance(content, list) else [content]:
            fields: Record = part if isinstance(part, dict) else {"type": "text", "text": part}
            if fields.get("type") == "image":
                src = collage if "collage_of" in fields else pictures.get(str(fields.get("frame_id")))
                parts.append({"src": src, "id": fields.get("frame_id")})
            else:
                parts.append({"text": texts.index(str(fields.get("text", part)))})
        shown.append({"role": str(message.get("role")) if isinstance(message, dict) else "", "parts": parts})
    return shown


class ShardRequests:
    """The requests of one shard: those to the policy, the Analyzer and the teacher."""

    def __init__(self, store: Store, shard: Shard, pictures: Mapping[str, str]) -> None:
        """Read the prompts and calls of a shard.

        Args:
            store: the store.
            shard: one of its shards.
            pictures: paths of the stored frames by frame id.

        Raises:
            StoreError: a file is missing, torn, or has other columns.
        """
        self._store, self._shard, self._pictures = store, shard, pictures
        prompts = [store.read(PROMPTS, shard), store.read_file(store.label_prompts_file(shard), PROMPTS)]
        self._prompts = {row["prompt_hash"]: row for table in prompts for row in table.to_pylist()}
        calls = [store.read(CALLS, shard)]
        teacher = store.label_calls_file(shard)
        if teacher is not None:
            calls.append(store.read_file(teacher, CALLS))
        self._calls: dict[tuple[str, str], list[Record]] = {}
        for row in (row for table in calls for row in table.to_pylist()):
            self._calls.setdefault((row["episode_id"], row["role"]), []).append(row)
        policy = store.run.policy()
        self.policy = policy if isinstance(policy, ModelPolicy) else None

    def student(self, episode: Record, steps: Sequence[Record], texts: Texts) -> list[Record]:
        """Return the request of every step; the replies are in the steps themselves."""
        calls = {call["t"]: call for call in self._calls.get((episode["episode_id"], "student"), [])}
        own = self.policy is not None and self.policy.name == episode["policy"]
        requests: list[Record] = []
        for step in steps:
            stored = self._prompts.get(step["prompt_hash"])
            call = calls.get(step["t"])
            record = self.prompt(step["prompt_hash"], texts) | {"t": step["t"], "fields": None, "call": _call(call)}
            if own and stored is not None:
                record["fields"] = self.fields(episode["episode_id"], step["t"], step["prompt_hash"], call)
            requests.append(record)
        return requests

    def fields(self, episode_id: str, t: int, prompt_hash: str, call: Record | None = None) -> str | None:
        """Return a request's fields besides its messages as JSON, without fields that its server refused.

        None where the policy asks no model.
        """
        if self.policy is None:
            return None
        prompt = PromptMessages(prompt_hash, "", "", ())
        # A request is made of prompt and seed alone: the level and the environment of a turn are for embedded policies.
        turn = Turn(episode_id, t, derive_seed(episode_id, t), prompt, {}, cast(Any, None), cast(Any, None))
        encoder = RequestEncoder(str(self.policy.config.get("model")))
        without = frozenset((call or {}).get("left_out") or ())
        without |= {RENAMED[name] for name in without & RENAMED.keys()}
        return json.dumps(encoder.fields(self.policy.request(turn), without), indent=1)

    def prompt(self, prompt_hash: str | None, texts: Texts, collage: str | None = None) -> Record:
        """Return a stored prompt; its messages are None where the store lacks it."""
        row = self._prompts.get(prompt_hash)
        names = {"prompt_hash": prompt_hash, "template": None, "version": None, "messages": None}
        if row is None:
            return names
        messages = shown_messages(parsed(row["messages"]), texts, self._pictures, collage)
        return names | {"template": row["template"], "version": row["version"], "messages": messages}

    def teacher_calls(self, episode_id: str) -> list[Record]:
        """Return the calls of the teacher about an episode, in order, with its raw answers."""
        return [_call(call) or {} for call in self._calls.get((episode_id, "teacher"), [])]


def _call(row: Record | None) -> Record | None:
    return None if row is None else {name: plain(row[name]) for name in _CALL_COLUMNS}
