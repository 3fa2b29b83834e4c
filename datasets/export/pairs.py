"""Preference pairs: at the pivot of each failure a safe reply against the fatal one, to the same prompt."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from ...core.messages import bare_messages
from ..store.schema import MESSAGES, STRINGS, Column, TableSchema
from .base import (
    IMAGES,
    LABEL,
    PROMPT,
    TURN,
    LabelledEpisode,
    LabelledShard,
    PlanExporter,
    answer,
    is_plain,
    provenance,
)
from .turns import PlannedTurn, ShardTurns

MORE = (
    *LABEL,
    Column("chosen_action", pa.string(), "The safe action, as logged."),
    Column("rejected_action", pa.string(), "The fatal action, as logged."),
    Column("safe_actions", STRINGS, "All actions after which the goal was within reach, see `feasible_actions`."),
    Column("prompt_hash", pa.string(), "Key into `prompts` of the store."),
    Column(
        "chosen_from",
        pa.string(),
        "`sibling`: another rollout's reply to this prompt; `own`: this rollout's, at another step; `witness`: a "
        "template with the action of the plan.",
    ),
    Column("sibling_id", pa.string(), "Episode of that reply; null for `witness`."),
    Column("sibling_t", pa.int32(), "Step of that reply; null for `witness`."),
)
PAIRS = TableSchema(
    "pairs",
    "One row per accepted failure that had a safe action at its pivot.",
    (
        *TURN,
        PROMPT,
        Column("chosen", MESSAGES, "A reply with a safe action."),
        Column(
            "rejected",
            MESSAGES,
            "The agent's own reply, which was fatal; where an import has no reply, its action in the form of `chosen`.",
        ),
        IMAGES,
        *MORE,
    ),
    repeats=True,
)


class PairsExporter(PlanExporter):
    """Rows of preference pairs."""

    name: ClassVar[str] = "pairs"
    summary: ClassVar[str] = (
        "Each row is the pivot of a failure: the agent's prompt, its fatal reply (rejected), and a reply to the same "
        "prompt after which the goal was still within reach (chosen)."
    )

    def schema(self) -> TableSchema:
        """Return the columns."""
        return PAIRS

    def rows(self, shard: LabelledShard) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a pair per failure whose pivot action was fatal."""
        with ShardTurns(shard) as turns:
            for each in shard.episodes():
                if each.label is None or each.label["fallback"]:
                    continue
                fatal = each.steps[each.label["pivot_step"]]
                if fatal["action"] in each.label["feasible_actions"]:
                    continue
                for turn in turns.plan(each, most=1):
                    if (pair := self._pair(each, fatal, turn, turns)) is not None:
                        yield each.side, provenance(each, shard.kind, (*TURN, *LABEL)) | pair

    def _pair(
        self, each: LabelledEpisode, fatal: dict[str, Any], turn: PlannedTurn, turns: ShardTurns
    ) -> dict[str, Any] | None:
        """Return the cells of a pair; None if its replies cannot be written, or the agent's holds a trainer's mark."""
        assert each.label is not None
        safe = each.label["feasible_actions"]
        sibling = turns.reply(each, turn.t, fatal["prompt_hash"], fatal["state"], safe)
        chosen = turns.written(each, fatal, turn.action, turn) if sibling is None else sibling.said
        rejected = turns.said(fatal) or turns.written(each, fatal, fatal["action"], turn)
        if chosen is None or rejected is None or not is_plain(rejected.text):
            return None
        return {
            "t": turn.t,
            "images": [{"bytes": image, "path": None} for image in turn.images],
            "chosen_action": turn.action if sibling is None else sibling.action,
            "rejected_action": fatal["action"],
            "safe_actions": safe,
            "prompt_hash": fatal["prompt_hash"],
            "chosen_from": "witness" if sibling is None else sibling.origin(each),
            "sibling_id": None if sibling is None else sibling.episode_id,
            "sibling_t": None if sibling is None else sibling.t,
            "prompt": bare_messages(turn.prompt.messages),
            "chosen": answer(chosen),
            "rejected": answer(rejected),
        }
