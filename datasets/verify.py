"""``pivot verify``: prove a store again from its rows.

Nothing that the store says about itself is trusted but its config: levels, episode ids and the split are derived from
``run.json``, frame ids from pixels, rewards and frames from a replay, labels from an independent search. The manifest
is checked too, but every change of a row is found without it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environments.base import Task
from ..errors import PivotError, StoreError
from ..rollouts.plan import plan_tasks
from .card import CARD, card_text
from .config import Shard, env_config, environment
from .export import assign_sides
from .files import file_record
from .progress import Reporter
from .schema import EPISODES
from .store import DATASET_FOLDER, MANIFEST, RUN, Store, data_files
from .verify_shard import ShardReport, verify_shard


@dataclass(slots=True)
class Report:
    """The outcome of a verification."""

    problems: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

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
    try:
        sides = assign_sides(store)
    except PivotError as error:
        report.problems.append(str(error))
        return report
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
        for name, number in found[shard].checked.items():
            report.checked[name] = report.checked.get(name, 0) + number
    report.problems += _card_problems(store)
    return report


def _one_by_one(call: Callable[..., ShardReport], arguments: Sequence[tuple[Any, ...]]) -> Iterator[ShardReport]:
    for each in arguments:
        yield call(*each)


def _planned(store: Store) -> dict[Shard, list[Task]]:
    tasks = {
        name: plan_tasks(environment(name), env_config(name, run.settings), store.config.seed, run.tasks)
        for name, run in store.config.environments.items()
    }
    return {shard: tasks[shard.env][shard.first : shard.stop] for shard in store.config.shards()}


def _sides_of(store: Store, shard: Shard, sides: dict[str, dict[str, str]]) -> dict[str, str]:
    ids = store.read(EPISODES, shard, ["episode_id"])["episode_id"].to_pylist()
    return {episode: sides[shard.env][episode] for episode in ids}


def _file_problems(store: Store) -> list[str]:
    """Compare the manifest with the files on disk."""
    manifest = store.manifest()
    problems = []
    for name, record in manifest.items():
        path = store.root / name
        if not path.is_file():
            problems.append(f"{name}: the file is missing")
        elif (actual := file_record(path)) != record:
            what = "length" if actual.bytes != record.bytes else "sha256"
            problems.append(f"{name}: its {what} is not that of {MANIFEST}")
    present = {*data_files(store), RUN}
    problems += [f"{name}: the file is not in {MANIFEST}" for name in sorted(present - manifest.keys())]
    problems += [f"{name}: {MANIFEST} does not list it" for name in sorted(_needed(store) - manifest.keys() - present)]
    return problems


def _needed(store: Store) -> set[str]:
    return {store.table_file(EPISODES, shard) for shard in store.config.shards()} | {RUN}


def _card_problems(store: Store) -> list[str]:
    path = store.root / DATASET_FOLDER / CARD
    try:
        found = path.read_text(encoding="utf-8")
        with_picture = (path.parent / "example.png").is_file()
        expected = card_text(store, DATASET_FOLDER, with_picture=with_picture)
    except (OSError, ValueError, StoreError) as error:
        return [f"{DATASET_FOLDER}/{CARD}: {error}"]
    return [] if found == expected else [f"{DATASET_FOLDER}/{CARD}: its text is not the one that the tables give"]
