"""Base of the formats for trainers: the columns that their rows share, and one row builder per format."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from ...core.messages import bare_messages
from ...rollouts.replies import Said
from ...solvers.base import Solver
from ..store.config import Shard
from ..store.dataset_rows import SIDES
from ..store.schema import EPISODES, IMAGE, LABELS, MESSAGES, Column, TableSchema
from ..store.tables import Rows
from .base import Exporter, ExportTables, LabelledEpisode, LabelledShard

PICTURE = "<image>"
"""Mark of a picture in the text of a chat."""
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
CHAT = pa.list_(MESSAGE)
"""Chat messages whose content is one text, with :data:`PICTURE` in place of each picture."""

_CALL = [
    ("id", pa.string()),
    ("type", pa.string()),
    ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
]
CALLING = pa.list_(
    pa.struct([*MESSAGES.value_type, ("tool_calls", pa.list_(pa.struct(_CALL))), ("tool_call_id", pa.string())])
)
"""Messages of a store whose agents call tools; arguments are JSON, as in OpenAI's API."""

Row = dict[str, Any]
Messages = Sequence[Mapping[str, Any]]

EPISODE = (
    *EPISODES.only("episode_id", "env", "task_id", "goal_idx", "eval_set", "group_id", "sample_idx", "policy"),
    Column(
        "certificate_kind",
        pa.string(),
        "Kind of the facts behind the row: `exact` is proved; `lower_bound`, `heuristic` and `convention` are weaker.",
    ),
    *LABELS.only("evidence"),
)
"""Provenance of a row about an episode."""
TURN = (*EPISODE, Column("t", pa.int32(), "Step index of the turn, 0-based."))
"""Provenance of a row about a turn."""
LABEL = LABELS.only("label_version", "pivot_step", "failure_mode")
"""Columns of the label behind a row."""
IMAGES = Column("images", pa.list_(IMAGE), "Pictures of the prompt, in order.")
PROMPT = Column("prompt", MESSAGES, "The agent's own prompt of the turn, TRL conversational parts.")


def provenance(each: LabelledEpisode, kind: str, columns: Sequence[Column] = EPISODE) -> Row:
    """Return the cells of the columns that an episode or its label has, with the kind of its certificate."""
    names = {column.name for column in columns}
    rows = [each.episode] if each.label is None else [each.episode, each.label]
    return {name: row[name] for row in rows for name in names & row.keys()} | {
        "certificate_kind": kind,
        "evidence": list(each.evidence),
    }


def answer(said: Said) -> list[dict[str, Any]]:
    """Return a reply as TRL's conversational parts."""
    calls = [
        {"id": None, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
        for call in said.calls
    ]
    message = {"role": "assistant", "content": [{"type": "text", "text": said.text}]}
    return [message | ({"tool_calls": calls} if calls else {})]


def chat(prompt: Messages, reply: str) -> list[dict[str, str]]:
    """Return a prompt, and a reply to it, as a chat of :data:`CHAT`."""
    messages = [{"role": each["role"], "content": _joined(each["content"])} for each in bare_messages(prompt)]
    return [*messages, {"role": "assistant", "content": reply}]


def _joined(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(PICTURE if part["type"] == "image" else part["text"] for part in content)


def is_plain(reply: str) -> bool:
    """Return whether a reply has no mark that a trainer would read as a picture or as the end of a turn."""
    return PICTURE not in reply and "<|" not in reply


WITHOUT_PLANS = {
    "heuristic": "a heuristic, which proves no action safe",
    "convention": "a convention, after which no action is fatal or safe",
}
"""Kinds of certificates without a plan, with their description."""


class TrainerExporter(Exporter):
    """Composes the rows of one table."""

    name: ClassVar[str]
    """Registered name."""

    @abstractmethod
    def schema(self) -> TableSchema:
        """Return the columns, which depend on the settings."""

    @abstractmethod
    def rows(self, shard: LabelledShard) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield side of the split and cells of each row, in the order of the episodes."""

    def tables(self, shard: LabelledShard) -> ExportTables:
        """Return the rows of a shard for both sides of the split."""
        rows: dict[str, Rows] = {side: [] for side in SIDES}
        for side, row in self.rows(shard):
            rows[side].append(row)
        schema = self.schema()
        if shard.store.is_imported and any(each["calls"] for each in shard.store.audit["environments"].values()):
            columns = tuple(replace(each, type=CALLING) if each.type == MESSAGES else each for each in schema.columns)
            schema = replace(schema, columns=columns)
        return {
            (schema, side): schema.table(made, features=True, labels=shard.store.run.failure_modes)
            for side, made in rows.items()
        }

    def file(self, schema: TableSchema, shard: Shard, side: str) -> str:
        """Return the name of a file: each environment and side of the split has a folder."""
        return f"{schema.name}/{shard.env}/{side}/{shard.number:05d}.parquet"


class PlanExporter(TrainerExporter):
    """A format whose rows need actions that are certainly safe."""

    version: ClassVar[str] = "3"
    plays: ClassVar[bool] = True
    shows_prompts: ClassVar[bool] = True

    @classmethod
    def refusal(cls, solver: type[Solver]) -> str | None:
        """Refuse solvers without plans."""
        what = WITHOUT_PLANS.get(solver.kind)
        return None if what is None else f"its certificate is {what}"
