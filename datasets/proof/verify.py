"""``pivot verify``: prove a store again from its rows.

Nothing that the store says about itself is trusted but its config: levels, episode ids and the split are derived from
``run.json``, frame ids from pixels, rewards and frames from a replay, labels from an independent search. The manifest
is checked too, but every change of a row is found without it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from ...environments.base import Task
from ...errors import StoreError
from ...images import decode, frame_id
from ...rollouts.plan import plan_tasks
from ...storage import Storage
from ..card import CARD, PICTURE, card_text, example_picture
from ..config import Shard
from ..export import assign_sides, dataset_file
from ..progress import Reporter
from ..schema import DATASET, DATASET_EPISODES, EPISODES, LABELS, STORE_TABLES
from ..split import SIDES
from ..store import DATASET_FOLDER, MANIFEST, RUN, Store, data_files
from .shard import BROKEN_ROWS, ShardReport, verify_shard


@dataclass(slots=True)
class Report:
    """The outcome of a verification."""

    problems: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    unproved: int = 0
    """Labels that hold as far as they were derived anew, but that no independent search could decide."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


Stream = Callable[[Callable[..., ShardReport], Sequence[tuple[Any, ...]]], Iterator[ShardReport]]
STAGE = "verify"


def verify_store(root: Path, progress: Reporter, stream: Stream | None = None) -> Report:
    """Verify a finished store; ``stream`` runs the shards, by default one after the other in this process.

    Raises:
        StoreError: there is no finished store at ``root``.
        GenerationError, PluginError, ConfigError: its config cannot be carried out here, so nothing can be derived.
    """
    store = Store.open(root)
    report = Report()
    report.problems += _file_problems(store)
    tasks = _planned(store)
    sides: dict[str, dict[str, str]] | None = None
    try:
        sides = assign_sides(store)
    except StoreError as error:
        report.problems.append(str(error))
    except BROKEN_ROWS as error:
        report.problems.append(f"the split cannot be derived ({type(error).__name__}: {error})")
    shards = store.config.shards()
    progress.start(STAGE, sum(len(tasks[shard]) for shard in shards) * store.config.rollouts)
    arguments = [(root, store.config, shard, tasks[shard], _sides_of(store, shard, sides)) for shard in shards]
    found: dict[Shard, ShardReport] = {}
    for part in (stream or _one_by_one)(verify_shard, arguments):
        found[part.shard] = part
        progress.advance(STAGE, len(tasks[part.shard]) * store.config.rollouts)
    progress.finish(STAGE)
    for shard in shards:
        report.problems += found[shard].problems
        report.unproved += found[shard].unproved
        for name, number in found[shard].checked.items():
            report.checked[name] = report.checked.get(name, 0) + number
    report.problems += _card_problems(store)
    return report


def _one_by_one(call: Callable[..., ShardReport], arguments: Sequence[tuple[Any, ...]]) -> Iterator[ShardReport]:
    for each in arguments:
        yield call(*each)


def _planned(store: Store) -> dict[Shard, list[Task]]:
    tasks = {
        name: plan_tasks(env.type, env.config, store.config.seed, env.tasks) for name, env in store.run.envs.items()
    }
    return {shard: tasks[shard.env][shard.first : shard.stop] for shard in store.config.shards()}


def _sides_of(store: Store, shard: Shard, sides: dict[str, dict[str, str]] | None) -> dict[str, str] | None:
    if sides is None:
        return None
    ids = store.read(EPISODES, shard, ["episode_id"])["episode_id"].to_pylist()
    return {episode: sides[shard.env][episode] for episode in ids}


def _file_problems(store: Store) -> list[str]:
    """Compare the manifest, the files on disk, and those that the run makes."""
    manifest = store.manifest()
    made = _made_files(store)
    problems = []
    for name, record in manifest.items():
        if store.storage.stat(name) is None:
            problems.append(f"{name}: the file is missing")
        elif (actual := store.storage.record(name)) != record:
            what = "length" if actual.bytes != record.bytes else "sha256"
            problems.append(f"{name}: its {what} is not that of {MANIFEST}")
    version = store.config.label_version
    # An interrupted relabelling leaves parts of the next version, which no reader opens and the next one takes up.
    present = {name for name in (*data_files(store), RUN) if _labels_of(name) != version + 1}
    problems += [f"{name}: the file is not in {MANIFEST}" for name in sorted(present - manifest.keys())]
    lost = sorted(made - manifest.keys() - present)
    problems += [f"{name}: the file is missing, and {MANIFEST} does not list it" for name in lost]
    for name in sorted((manifest.keys() & present) - made - {f"{DATASET_FOLDER}/{PICTURE}"}):
        if not 0 < _labels_of(name) < version:
            problems.append(f"{name}: a file that the run does not make")
    return problems


def _made_files(store: Store) -> set[str]:
    """Relative paths of every file that the run makes and the manifest lists."""
    files = {RUN, f"{DATASET_FOLDER}/{CARD}"}
    for schema in (*STORE_TABLES, LABELS):
        files.update(store.files(schema))
    for schema in (DATASET, DATASET_EPISODES):
        for side in SIDES:
            files.update(dataset_file(DATASET_FOLDER, schema, shard, side) for shard in store.config.shards())
    return files


def _labels_of(name: str) -> int:
    """The label version that a file belongs to, 0 for any other file."""
    found = re.fullmatch(r"labels/v(\d+)/.*|(?:prompts|calls)/.*-labels-v(\d+)\.parquet", name)
    return int(found[1] or found[2]) if found else 0


def _card_problems(store: Store) -> list[str]:
    storage = store.storage
    try:
        picture = example_picture(store)
        run = storage.read_json(RUN)
        card = card_text(store, DATASET_FOLDER, run, store.manifest(), picture is not None)
        problems = []
        if storage.read_bytes(f"{DATASET_FOLDER}/{CARD}").decode() != card:
            problems.append(f"{DATASET_FOLDER}/{CARD}: its text is not the one that the tables and {RUN} give")
        if not _shows(storage, f"{DATASET_FOLDER}/{PICTURE}", picture):
            problems.append(f"{DATASET_FOLDER}/{PICTURE}: it is not the picture that the tables give")
    except (*BROKEN_ROWS, OSError, pl.exceptions.PolarsError) as error:
        return [f"{DATASET_FOLDER}/{CARD}: it cannot be derived anew ({error})"]
    return problems


def _shows(storage: Storage, name: str, picture: bytes | None) -> bool:
    """Whether a file shows the pixels of ``picture``; without a picture there must be no file."""
    if picture is None or storage.stat(name) is None:
        return picture is None and storage.stat(name) is None
    found = storage.read_bytes(name)
    return found == picture or frame_id(decode(found)) == frame_id(decode(picture))
