"""The records of the Analyzer as chats, for trainers that take messages, such as ms-swift."""

from collections.abc import Iterator
from typing import Any, ClassVar

from ..store.schema import LABELS, Column, TableSchema
from .base import CHAT, EPISODE, IMAGES, LABEL, LabelledShard, TrainerExporter, chat, provenance

ANALYZER = TableSchema(
    "analyzer",
    "One row per accepted failure.",
    (
        *EPISODE,
        Column("messages", CHAT, "Analyzer prompt and target JSON."),
        IMAGES,
        *LABEL,
        *LABELS.only("prompt_hash", "guidance_source"),
    ),
)


class AnalyzerExporter(TrainerExporter):
    """Rows of Analyzer chats."""

    name: ClassVar[str] = "analyzer"
    summary: ClassVar[str] = "Each row is a failure as the Analyzer sees it: collage and log, with the target JSON."

    def schema(self) -> TableSchema:
        """Return the columns."""
        return ANALYZER

    def rows(self, shard: LabelledShard) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a row per labelled failure."""
        for each in shard.episodes():
            if each.label is not None:
                cells = {"messages": chat(each.prompt, each.label["target"]), "images": [each.collage()]}
                yield each.side, provenance(each, shard.kind, ANALYZER.columns) | cells
