"""Certified corrections: from the pivot of each failure, the prompts and actions of the plan that still worked."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from ...core.messages import bare_messages
from ..store.schema import MESSAGES, Column, TableSchema
from .base import IMAGES, LABEL, PROMPT, TURN, LabelledShard, PlanExporter, answer, provenance
from .turns import ShardTurns

MORE = (
    *LABEL,
    Column("action", pa.string(), "The certified action, as logged."),
    Column("need", pa.int32(), "Turns of the plan from here to the goal."),
    Column("turns_left", pa.int32(), "Turns left before the action."),
    Column("prompt_hash", pa.string(), "Digest of the prompt; of the pivot's a key into `prompts` of the store."),
    Column(
        "thought",
        pa.string(),
        "Origin of the reply: `sibling`, another rollout's to this prompt; `own`, this rollout's at another step; or "
        "`template`.",
    ),
    Column("sibling_id", pa.string(), "Episode of that reply; null for `template`."),
    Column("sibling_t", pa.int32(), "Step of that reply; null for `template`."),
)
DOC = "One row per turn of the certified plan of each accepted failure."
COMPLETION = Column("completion", MESSAGES, "The reply with the certified action.")
CORRECTIONS = TableSchema("corrections", DOC, (*TURN, PROMPT, COMPLETION, IMAGES, *MORE), repeats=True)


class CorrectionsExporter(PlanExporter):
    """Rows of corrections."""

    name: ClassVar[str] = "corrections"
    summary: ClassVar[str] = (
        "Each row is one turn of a plan that still worked from the pivot of a failure: the agent's prompt, and a reply "
        "with the certified action."
    )

    def schema(self) -> TableSchema:
        """Return the columns."""
        return CORRECTIONS

    def rows(self, shard: LabelledShard) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the turns of the plans."""
        with ShardTurns(shard) as turns:
            for each in shard.episodes():
                shared = provenance(each, shard.kind, (*TURN, *LABEL))
                for turn in turns.plan(each):
                    name = turn.prompt.prompt_hash
                    sibling = turns.reply(each, turn.t, name, turn.state, [turn.action])
                    step = each.steps[min(turn.t, len(each.steps) - 1)]
                    reply = turns.written(each, step, turn.action, turn) if sibling is None else sibling.said
                    if reply is None:
                        continue
                    cells = {
                        "t": turn.t,
                        "prompt": bare_messages(turn.prompt.messages),
                        "completion": answer(reply),
                        "images": [{"bytes": image, "path": None} for image in turn.images],
                        "action": turn.action,
                        "need": turn.need,
                        "turns_left": turn.turns_left,
                        "prompt_hash": name,
                        "thought": "template" if sibling is None else sibling.origin(each),
                        "sibling_id": None if sibling is None else sibling.episode_id,
                        "sibling_t": None if sibling is None else sibling.t,
                    }
                    yield each.side, shared | cells
