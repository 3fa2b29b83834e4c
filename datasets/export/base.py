"""The contract of an export format (group ``pivot.exporters``): the rows and columns that a trainer reads.

A format is one file: a subclass of :class:`Exporter` with the columns of its tables. ``pivot export NAME STORE`` runs
it over the shards of a finished store; the format ``dataset`` is a part of every store.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import pyarrow as pa

from ...collage import collage, panel
from ...core.contracts import Answer, Fits, Terms
from ...core.messages import bare_messages
from ...core.plugins import Plugin, Settings
from ...labeling.episode import PLAYED, FailedEpisode
from ...solvers.base import Solver
from ..store.config import Shard
from ..store.dataset_rows import FrameReader, drawn_tiles, trainable
from ..store.schema import EPISODES, FRAMES, IMAGE, LABELS, MESSAGES, PROMPTS, STEPS, Column, TableSchema
from ..store.splits import SIDES
from ..store.store import Store
from ..store.tables import FAILURE_COLUMNS, Rows, check_steps, failed_episodes, steps_by_episode

if TYPE_CHECKING:
    from ...rollouts.replies import Said


@dataclass(frozen=True, slots=True)
class LabelledEpisode:
    """A complete episode of a shard with its steps and, for an accepted failure, its label."""

    episode: dict[str, Any]
    """Row of the table ``episodes``."""
    steps: Rows
    """Rows of the table ``steps``, in order."""
    side: str
    """``train`` or ``validation``."""
    label: dict[str, Any] | None
    """Row of the table ``labels`` if it belongs to the training set, else None."""
    messages: str
    """Analyzer prompt of the label, JSON; empty without a label."""
    frames: FrameReader
    evidence: Sequence[str]
    """Confirmation of the actions and the level; empty for an import without any, from which no row may be made."""

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """The Analyzer prompt as chat messages; image parts name their frame."""
        return json.loads(self.messages) if self.messages else []

    def collage(self) -> dict[str, Any]:
        """Return the step-labelled collage as an image cell."""
        tiles = drawn_tiles(self.episode["env"], self.steps, self.frames)
        return self.frames.image(collage(tiles.frames, tiles.labels), self.steps[0]["frame_id"])

    def panel(self, step: int) -> dict[str, Any]:
        """Return the tiles before, at and after a step as an image cell."""
        tiles = drawn_tiles(self.episode["env"], self.steps, self.frames)
        return self.frames.image(panel(tiles.steps, step), self.steps[0]["frame_id"])


@dataclass(frozen=True)
class LabelledShard:
    """The stored rows of a shard, each table read once."""

    store: Store
    shard: Shard
    sides: Mapping[str, str]
    """Side of the split by episode id."""

    @property
    def kind(self) -> str:
        """The kind of its certificates."""
        return self.store.run.envs[self.shard.env].solver().kind

    @cached_property
    def steps(self) -> pa.Table:
        """The table ``steps``."""
        return self.store.read(STEPS, self.shard)

    @cached_property
    def prompts(self) -> dict[str, str]:
        """The stored messages of the agent's prompts, JSON, by hash."""
        table = self.store.read(PROMPTS, self.shard, ["prompt_hash", "messages"])
        return dict(zip(table["prompt_hash"].to_pylist(), table["messages"].to_pylist(), strict=True))

    @cached_property
    def failures(self) -> dict[str, FailedEpisode]:
        """The failed, complete episodes by id, as replays take them."""
        rows = self.store.read(EPISODES, self.shard, FAILURE_COLUMNS)
        rows = failed_episodes(rows, self.steps, self.store.evidence(self.shard))
        return {each.episode_id: each for each in rows}

    def episodes(self) -> Iterator[LabelledEpisode]:
        """Yield the complete episodes, in order.

        Raises:
            StoreError: a file is missing or damaged.
        """
        store, shard = self.store, self.shard
        frames = FrameReader(store.read(FRAMES, shard))
        steps = steps_by_episode(self.steps.to_pylist())
        labels = {row["episode_id"]: row for row in store.read(LABELS, shard).to_pylist()}
        confirmed = store.evidence(shard)
        table = store.read_file(store.label_prompts_file(shard), PROMPTS, ["prompt_hash", "messages"])
        prompts = dict(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
        for episode in store.read(EPISODES, shard).to_pylist():
            name = episode["episode_id"]
            if episode["status"] == "complete":
                label = labels.get(name)
                if label is not None and not trainable(label, store.config):
                    label = None
                messages = "" if label is None else prompts[label["prompt_hash"]]
                mine = steps.get(name, [])
                check_steps(episode, mine, label)
                evidence = PLAYED if confirmed is None else confirmed.get(name, ())
                yield LabelledEpisode(episode, mine, self.sides[name], label, messages, frames, evidence)


ExportTables = dict[tuple[TableSchema, str], pa.Table]
"""Tables by their columns and split."""


def _has_its_columns(tables: Any) -> bool:
    return all(
        isinstance(key, tuple)
        and len(key) == 2
        and isinstance(key[0], TableSchema)
        and key[1] in SIDES
        and isinstance(table, pa.Table)
        and table.schema.equals(key[0].arrow)
        for key, table in tables.items()
    )


class Exporter(Plugin):
    """Composes the tables of one format from the rows of a shard."""

    terms: ClassVar[Terms] = Terms(
        answers={
            "tables": Answer(Annotated[dict[Any, Any], Fits(_has_its_columns, "tables by (TableSchema, side)")]),
            "file": Answer(str),
        }
    )
    config_type: ClassVar[type[Settings]] = Settings
    version: ClassVar[str] = "1"
    """Raised with every change of the rows that the format makes of an unchanged store."""
    plays: ClassVar[bool] = False
    """Whether environments run, whose code the call then has to allow."""
    shows_prompts: ClassVar[bool] = False
    """Whether its rows need the prompts of the agent, which an import may lack."""
    summary: ClassVar[str] = ""
    """Description of a row for the card of an export; without one, the export gets no card."""

    @classmethod
    def refusal(cls, solver: type[Solver]) -> str | None:
        """Return why an environment with this solver has no rows here, and what to do; None if it has rows."""
        del solver
        return None

    @abstractmethod
    def tables(self, shard: LabelledShard) -> ExportTables:
        """Return the tables of a shard by columns and split; one without rows gets no file."""

    def file(self, schema: TableSchema, shard: Shard, side: str) -> str:
        """Return the name of a table's file, relative to the folder of the export."""
        return f"{schema.name}/{shard.env}/{side}-{shard.number:05d}.parquet"


# Formats for trainers: the columns that their rows share, and one row builder per format

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


def answer(said: "Said") -> list[dict[str, Any]]:
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
        """Yield split and cells of each row, in the order of the episodes."""

    def tables(self, shard: LabelledShard) -> ExportTables:
        """Return the rows of a shard for both splits."""
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
        """Return the name of a file: each environment and split has a folder."""
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
