"""The dataset of a store, for TRL and the Hugging Face library: one row per accepted failure, and whole episodes."""

import json
from collections.abc import Sequence
from typing import Any

from ...collage import collage, panel
from ...core.errors import StoreError
from ...core.messages import bare_messages
from ...labeling.analyzer import shown_log
from ...solvers.base import FAILURE_MODES
from ..store.config import Shard
from ..store.dataset_rows import FrameReader, dataset_file, drawn_tiles, seen_frames
from ..store.schema import DATASET, DATASET_EPISODES, TableSchema
from ..store.splits import SIDES
from ..store.tables import Rows
from .base import Exporter, ExportTables, LabelledShard


class DatasetExporter(Exporter):
    """Both configs of the dataset: records, and whole episodes."""

    def tables(self, shard: LabelledShard) -> ExportTables:
        """Return records and whole episodes for both splits."""
        records: dict[str, Rows] = {side: [] for side in SIDES}
        whole: dict[str, Rows] = {side: [] for side in SIDES}
        modes = shard.store.run.failure_modes
        for each in shard.episodes():
            pictures = [{"bytes": each.frames.encoded(frame), "path": None} for frame in seen_frames(each.steps)]
            row = {name: each.episode[name] for name in DATASET_EPISODES.names if name in each.episode}
            row |= {"images": pictures, "responses": [step["response"] for step in each.steps]}
            whole[each.side].append(row)
            if each.label is not None:
                row = record_row(each.episode, each.steps, each.label, each.messages, each.frames, modes)
                records[each.side].append(row)
        tables = {(DATASET, side): DATASET.table(rows, features=True, labels=modes) for side, rows in records.items()}
        return tables | {
            (DATASET_EPISODES, side): DATASET_EPISODES.table(rows, features=True) for side, rows in whole.items()
        }

    def file(self, schema: TableSchema, shard: Shard, side: str) -> str:
        """Return the name of a file: records are in the folder of the environment, episodes in one with a suffix."""
        return dataset_file("", schema, shard, side)[1:]


def record_row(
    episode: dict[str, Any],
    steps: Rows,
    label: dict[str, Any],
    messages: str,
    frames: FrameReader,
    modes: Sequence[str] = FAILURE_MODES,
) -> dict[str, Any]:
    """Build one row of the ``dataset`` table from stored rows; ``modes`` are the class names of the run."""
    if label["failure_mode"] not in modes:
        raise StoreError(
            f"{label['episode_id']} has the failure mode {label['failure_mode']!r}, expected one of "
            f"{', '.join(modes)}; restore the labels from a copy or write them again with pivot relabel"
        )
    if not 0 <= label["pivot_step"] < len(steps):
        raise StoreError(
            f"{label['episode_id']} has the pivot step {label['pivot_step']}, expected 0 to {len(steps) - 1}; "
            "restore the labels from a copy or write them again with pivot relabel"
        )
    tiles, prompt = drawn_tiles(episode["env"], steps, frames), json.loads(messages)
    return {
        **{name: row[name] for row in (episode, label) for name in DATASET.names if name in row},
        "images": [frames.image(collage(tiles.frames, tiles.labels), steps[0]["frame_id"])],
        "panel": frames.image(panel(tiles.steps, label["pivot_step"]), steps[0]["frame_id"]),
        "prompt": bare_messages(prompt),
        "completion": [{"role": "assistant", "content": [{"type": "text", "text": label["target"]}]}],
        "failure_mode_id": modes.index(label["failure_mode"]),
        "action_log": shown_log(prompt),
        "solver": f"{label['solver']} {label['solver_version']}",
    }
