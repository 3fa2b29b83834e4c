"""Migrate a store of an older version to this version from its own rows, without model requests.

Episodes are replayed with their stored replies. Labels are certified again, with the stored guidance if the teacher's
request has not changed. A shard whose replay differs from its rows is refused by name.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from ..datasets.config import Shard
from ..datasets.formats import refuse_newer
from ..datasets.inputs import ROLLOUT, rollout_facts, rollout_inputs
from ..datasets.older import OlderFiles, readable_config
from ..datasets.progress import Reporter
from ..datasets.proof.rederive import rederive, renamed_call, stored_levels
from ..datasets.proof.replay import stored_guidance
from ..datasets.run import Run
from ..datasets.schema import EPISODES, LABELS, STORE_TABLES
from ..datasets.stages.base import REFUSED, Pending, Product, ShardResult, Stage
from ..datasets.stages.label import LabelStage
from ..datasets.store import RUN, Store
from ..datasets.tables import Rows
from ..environments.base import Task
from ..errors import ConfigError, StoreError
from ..labeling.base import UNANSWERED, Guidance, GuidanceRequest, GuidanceWriter, Objection
from ..labeling.label import with_prompt, write_guidance
from ..records import to_row
from ..storage import Address, open_storage
from .copying import Copying, check_source, copy_parts
from .engines.local import Execute
from .pipeline import BuildResult, plan, run_stages

STAGE = "migrate"
SHOWN = 5
"""Shards that a message names."""


@dataclass(frozen=True, slots=True)
class Migration:
    """The outcome of a migration."""

    result: BuildResult
    left_out: list[str] = field(default_factory=list)
    """Settings of its config that this version does not have."""


def migrate_store(root: Address, target: Address, execute: Execute, reporter: Reporter) -> Migration:
    """Write a finished store of an older version as a new store of this version; the old one is not changed.

    Args:
        root: the finished store.
        target: the new one; empty, or begun by the same call.
        execute: runs the shards.
        reporter: gets the progress.

    Raises:
        StoreError: a replay differs from the stored rows, a file is missing or damaged, ``target`` holds something
            else, or a run writes one of the two.
        ConfigError, PluginError, GenerationError: its config cannot be carried out here.
    """
    left_out: list[str] = []

    def copy(root: Address, target: Address, parts: Callable[[Store], None]) -> BuildResult:
        check_source(root)
        source, unknown = open_older(root)
        left_out.extend(each for each in unknown if each not in left_out)
        manifest = source.manifest()

        def files(shard: Shard) -> OlderFiles:
            names = [*(source.table_file(schema, shard) for schema in STORE_TABLES), *source.label_files(shard)]
            return OlderFiles(root, {name: manifest[name] for name in names if name in manifest})

        def shards(store: Store) -> list[ShardResult]:
            levels = _levels(store.run, reporter)
            older = {shard: files(shard) for shard in store.config.shards()}
            rollouts = [MigrateRollouts(store, shard, each, levels[shard]) for shard, each in older.items()]
            made = run_stages(rollouts, execute, reporter)
            _refuse(source, made)
            labels = [MigrateLabels(store, shard, files=each) for shard, each in older.items()]
            return made + run_stages(labels, execute, reporter)

        return Copying(STAGE, source, target, source.config).make(shards, execute, reporter, parts)

    return Migration(copy_parts(root, target, copy), left_out)


def _refuse(source: Store, made: list[ShardResult]) -> None:
    """Refuse a store if the replay of a shard differs from its rows.

    Raises:
        StoreError: one differs; the message names the shards.
    """
    refused = [(result.shard.stem, result.facts[REFUSED]) for result in made if REFUSED in result.facts]
    if refused:
        named = "; ".join(f"{stem}: {what}" for stem, what in refused[:SHOWN])
        more = f"; and {len(refused) - SHOWN} more shards" if len(refused) > SHOWN else ""
        raise StoreError(
            f"{len(refused)} of {len(made)} shards of {source.root} do not come out as they are stored: {named}{more}; "
            f"read them with the version that wrote them, or make new ones with: pivot build --config "
            f"{source.storage.address(RUN)} --out NEW"
        )


def open_older(root: Address) -> tuple[Store, list[str]]:
    """Open a finished store of any version; return also the settings that this version does not know.

    Raises:
        StoreError: the store is missing, or a newer version wrote it. ConfigError, PluginError: its config cannot be
            used here.
    """
    storage = open_storage(root)
    if storage.stat(RUN) is not None:
        refuse_newer(storage.read_json(RUN), root)
    try:
        store = Store.open(root)
        _ = store.run
    except ConfigError:
        config, left_out = readable_config(storage.read_json(RUN)["config"])
        if not left_out:
            raise
        store = Store(root, config)
        _ = store.run
        return store, left_out
    return store, []


def _levels(run: Run, reporter: Reporter) -> Mapping[Shard, list[Task] | None]:
    """Plan the levels of every shard; None if they come from files outside the store, which may be gone."""
    if any(env.config.levels_from_elsewhere is not None for env in run.envs.values()):
        return dict.fromkeys(run.config.shards())
    return plan(run, reporter)


@dataclass(frozen=True)
class MigrateRollouts(Stage):
    """Replays the rollouts of one shard with the stored replies."""

    files: OlderFiles
    tasks: Sequence[Task] | None
    """Levels of the shard; None if only the stored rows have them."""
    title: ClassVar[str] = STAGE

    @property
    def name(self) -> str:
        """Name of the stage in receipts: that of a rollout."""
        return ROLLOUT

    @cached_property
    def _episodes(self) -> Rows:
        return self.files.rows(self.store.table_file(EPISODES, self.shard))

    @cached_property
    def _levels(self) -> Sequence[Task]:
        return stored_levels(self._episodes, self.store.config.rollouts) if self.tasks is None else self.tasks

    def inputs(self) -> str:
        """Return the digest that a build would give its rollouts."""
        return rollout_inputs(self.store.run, self.shard, self._levels)

    def make(self, pending: Pending) -> Product:
        """Return the derived tables, or the reason why they are refused: the replay differs from the stored rows.

        Raises:
            StoreError: the rows cannot be read.
        """
        del pending
        names = {schema: self.store.table_file(schema, self.shard) for schema in STORE_TABLES}
        stored = {schema: self.files.rows(name) for schema, name in names.items() if schema is not EPISODES}
        derived = rederive(self.store.run, self.shard, self._levels, {EPISODES: self._episodes, **stored})
        if derived.problems:
            return Product([], {}, refused=derived.problems[0])
        tables = derived.tables
        return Product(
            [(name, schema, tables[schema]) for schema, name in names.items()], rollout_facts(tables[EPISODES])
        )


@dataclass(frozen=True)
class MigrateLabels(LabelStage):
    """Certifies the failures of one shard again, and keeps stored guidance whose request has not changed."""

    files: OlderFiles = field(kw_only=True)
    title: ClassVar[str] = f"{STAGE} labels"
    pending_fact: ClassVar[str | None] = None

    def make(self, pending: Pending) -> Product:
        """Return the tables of the labels; missing guidance stays pending.

        Raises:
            StoreError: the rows cannot be read.
        """
        certified, requests = self.certify()
        run, writer = self.store.run, self.store.run.writer()
        if not run.writer_is_served:
            return self.product(pending, certified, write_guidance(writer, requests))
        before = [row["episode_id"] for row in self.files.rows(self.store.table_file(EPISODES, self.shard))]
        after = self.store.read(EPISODES, self.shard, ["episode_id"])["episode_id"].to_pylist()
        texts = _stored_texts(self.store, self.shard, self.files, writer, dict(zip(before, after, strict=True)))
        guidance = {index: _answer(writer, request, texts) for index, request in requests.items()}
        return self.product(pending, certified, guidance)


@dataclass(frozen=True, slots=True)
class _StoredText:
    """Stored guidance about an episode, and the digest of its prompt."""

    guidance: Guidance
    prompt_hash: str | None


def _stored_texts(
    store: Store, shard: Shard, files: OlderFiles, writer: GuidanceWriter, ids: Mapping[str, str]
) -> dict[str, _StoredText]:
    """Return the stored texts of a writer, by the new ids of their episodes."""
    now = json.loads(json.dumps({**writer.config, "is_stand_in": writer.is_stand_in}))

    def is_its(row: Mapping[str, Any]) -> bool:
        """Return whether the same model wrote a label; settings that did not exist then are ignored."""
        config = json.loads(row.get("teacher_config") or "null")
        if row.get("teacher") != writer.name or not isinstance(config, dict):
            return False
        return config.items() <= now.items() and all("kind" in reason for reason in row["reject_reasons"])

    def renamed(row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, "episode_id": ids[row["episode_id"]]}

    labels: Rows = [renamed(row) for row in files.rows(store.table_file(LABELS, shard)) if is_its(row)]
    name = store.label_calls_file(shard)
    spent = [] if name is None else [to_row(renamed_call(row, ids[row["episode_id"]])) for row in files.rows(name)]
    texts = stored_guidance(labels, spent)
    return {row["episode_id"]: _StoredText(texts[row["episode_id"]], row.get("teacher_prompt_hash")) for row in labels}


def _answer(writer: GuidanceWriter, request: GuidanceRequest, stored: Mapping[str, _StoredText]) -> Guidance:
    """Return the stored guidance if its request has not changed; otherwise it is pending, and not requested here."""
    prompt, kept = writer.prompt(request), stored.get(request.episode.episode_id)
    if kept is not None and prompt is not None and kept.prompt_hash == prompt.prompt_hash:
        return with_prompt(kept.guidance, writer, request)
    return Guidance("", Objection(UNANSWERED, "the teacher would be asked something else than it was"), prompt=prompt)
