"""Whole episodes in the columns of ProcessBench: the index of the first wrong step, -1 where there is none."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from ...core.plugins import Settings
from ..store.schema import EPISODES, IMAGE, STRINGS, Column, TableSchema
from .base import LabelledEpisode, LabelledShard
from .trainer import EPISODE, TrainerExporter, provenance

PROCESSBENCH = TableSchema(
    "processbench",
    "One row per success and per accepted failure.",
    (
        Column("id", pa.string(), "Id of the episode."),
        Column("generator", pa.string(), "Policy that acted."),
        Column("problem", pa.string(), "Text of the agent's first prompt."),
        Column("steps", STRINGS, "The agent's replies, one per turn."),
        Column("final_answer_correct", pa.bool_(), "Whether the episode reached its goal."),
        Column("label", pa.int32(), "Index of the pivot, 0-based; -1 for a success."),
        Column("images", pa.list_(IMAGE), "Pictures before each turn, in order."),
        *(column for column in EPISODE if column.name != "policy"),
        *EPISODES.only("instruction", "actions"),
    ),
    repeats=True,
)


class ProcessBenchExporter(TrainerExporter):
    """Rows of whole episodes."""

    name: ClassVar[str] = "processbench"
    shows_prompts: ClassVar[bool] = True
    summary: ClassVar[str] = "Each row is an episode with the index of its first wrong step, in ProcessBench's columns."
    config_type: ClassVar[type[Settings]] = Settings

    def schema(self) -> TableSchema:
        """Return the columns."""
        return PROCESSBENCH

    def rows(self, shard: LabelledShard) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a row per confirmed success, and per labelled failure."""
        kind = shard.store.run.envs[shard.shard.env].solver().kind
        for each in shard.episodes():
            if (
                each.steps
                and each.steps[0]["prompt_hash"]
                and each.evidence
                and (each.label is not None or each.episode["success"])
            ):
                yield each.side, provenance(each, kind, PROCESSBENCH.columns) | _row(shard, each)


def _row(shard: LabelledShard, each: LabelledEpisode) -> dict[str, Any]:
    episode, steps = each.episode, each.steps
    prompt: Any = json.loads(shard.prompts[steps[0]["prompt_hash"]])
    texts = [
        part["text"]
        for message in prompt
        for part in (
            [{"type": "text", "text": message["content"]}]
            if isinstance(message["content"], str)
            else message["content"]
        )
        if part["type"] == "text"
    ]
    return {
        "id": episode["episode_id"],
        "generator": episode["policy"],
        "problem": "\n".join(texts),
        "steps": [step["response"] for step in steps],
        "final_answer_correct": bool(episode["success"]),
        "label": -1 if each.label is None else each.label["pivot_step"],
        "images": [{"bytes": each.frames.encoded(step["frame_id"]), "path": None} for step in steps],
    }
