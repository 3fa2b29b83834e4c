"""A store of an older version made one of this version, from what it holds: no model is asked.

Episodes are derived again around their stored replies, labels certified again with the stored guidance where its
teacher would be shown the same. A shard whose replay does something else than what is stored is refused by name.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..datasets.config import Shard
from ..datasets.formats import refuse_newer
from ..datasets.inputs import ROLLOUT, label_inputs, label_stage, rollout_facts, rollout_inputs
from ..datasets.older import OlderFiles, readable_config
from ..datasets.parquet import write_tables
from ..datasets.progress import Reporter
from ..datasets.proof.rederive import rederive, renamed_call, stored_levels
from ..datasets.proof.replay import stored_guidance
from ..datasets.run import Run
from ..datasets.schema import EPISODES, LABELS, STEPS, STORE_TABLES
from ..datasets.store import RUN, Store, shard_frames
from ..datasets.tables import Rows, failed_episodes
from ..environments.base import Task
from ..errors import ConfigError, StoreError
from ..labeling.base import UNANSWERED, Guidance, GuidanceRequest, GuidanceWriter, Objection
from ..labeling.label import certify_episodes, guidance_requests, with_prompt, write_guidance
from ..records import to_row
from ..storage import Address, open_storage
from .copying import Copying, copy_parts, settle_source
from .engines.local import Execute
from .pipeline import BuildResult, plan, run_stage
from .stages import LabelJob, ShardResult, finish, kept_result, store_labels, timed

STAGE = "migrate"
REFUSED = "refused"
SHOWN = 5
"""Shards that a message names."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What came of a store."""

    result: BuildResult
    left_out: list[str] = field(default_factory=list)
    """Settings of its config that this version does not have."""


def migrate_store(root: Address, target: Address, execute: Execute, reporter: Reporter) -> Migration:
    """Make a store of this version of a finished one that an older version wrote, which stays as it is.

    Args:
        root: the finished store.
        target: the new one; empty, or begun by the same call.
        execute: runs the shards.
        reporter: is told how far the work has come.

    Raises:
        StoreError: what is stored is not what its replay gives, a file is missing or damaged, ``target`` holds
            something else, or a run writes one of the two.
        ConfigError, PluginError, GenerationError: its config cannot be carried out here.
    """
    left_out: list[str] = []

    def copy(root: Address, target: Address, parts: Callable[[Store], None]) -> BuildResult:
        settle_source(root)
        source, unknown = open_older(root)
        left_out.extend(each for each in unknown if each not in left_out)
        manifest = source.manifest()

        def files(shard: Shard) -> OlderFiles:
            names = [*(source.table_file(schema, shard) for schema in STORE_TABLES), *source.label_files(shard)]
            return OlderFiles(root, {name: manifest[name] for name in names if name in manifest})

        def shards(store: Store) -> list[ShardResult]:
            levels = _levels(store.run, reporter)
            made = run_stage(
                STAGE, migrate_rollouts, store, execute, reporter, lambda shard: (files(shard), levels[shard])
            )
            _refuse(source, made)
            return made + run_stage(
                f"{STAGE} labels", migrate_labels, store, execute, reporter, lambda shard: (files(shard),)
            )

        return Copying(STAGE, source, target, source.config).make(shards, execute, reporter, parts)

    return Migration(copy_parts(root, target, copy), left_out)


def _refuse(source: Store, made: list[ShardResult]) -> None:
    """Refuse a store some of whose shards did not come out as they are stored.

    Raises:
        StoreError: it is one; the message names the shards.
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
    """Open a finished store of any version; return also what of its config this version does not know.

    Raises:
        StoreError: there is none, or a newer version wrote it. ConfigError, PluginError: its config cannot be used here
            in any way.
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
    """Plan the levels of every shard; None where they come from a place that need not be there any more."""
    if any(env.config.levels_from_elsewhere is not None for env in run.envs.values()):
        return dict.fromkeys(run.config.shards())
    return plan(run, reporter)


@timed
def migrate_rollouts(root: Address, run: Run, shard: Shard, files: OlderFiles, tasks: list[Task] | None) -> ShardResult:
    """Derive the rollouts of one shard, unless an earlier call did; facts say what is otherwise than it was stored.

    Raises:
        StoreError: the rows cannot be read, or not written.
    """
    store = Store(root, run.config)
    stored = {schema: files.rows(store.table_file(schema, shard)) for schema in (EPISODES,)}
    tasks = stored_levels(stored[EPISODES], run.config.rollouts) if tasks is None else tasks
    inputs = rollout_inputs(run, shard, tasks)
    earlier = kept_result(store, ROLLOUT, shard, inputs)
    if earlier is not None:
        return earlier
    stored |= {schema: files.rows(store.table_file(schema, shard)) for schema in STORE_TABLES if schema not in stored}
    derived = rederive(run, shard, tasks, stored)
    if derived.problems:
        return ShardResult(shard, ROLLOUT, False, {}, {REFUSED: derived.problems[0]})
    tables = derived.tables
    made = write_tables(
        store.storage, ((store.table_file(schema, shard), schema, tables[schema]) for schema in STORE_TABLES)
    )
    return finish(store, ROLLOUT, shard, inputs, made, rollout_facts(tables[EPISODES]))


@timed
def migrate_labels(root: Address, run: Run, shard: Shard, files: OlderFiles) -> ShardResult:
    """Certify the failures of one shard and judge their labels, unless an earlier call did.

    Raises:
        StoreError: the rows cannot be read, or not written.
    """
    store, config = Store(root, run.config), run.config
    inputs = label_inputs(store, run, shard)
    earlier = kept_result(store, label_stage(config), shard, inputs)
    if earlier is not None:
        return earlier
    writer = run.writer()
    episodes = store.read(EPISODES, shard)
    frames = shard_frames(store, shard) if writer.needs_pictures else {}
    failures = failed_episodes(episodes, store.read(STEPS, shard))
    certified = certify_episodes(failures, run.env(shard.env).solver(), config.target_vocabulary, config.log)
    requests = guidance_requests(certified, config.target_vocabulary, frames)
    if run.writer_is_served:
        then = [row["episode_id"] for row in files.rows(store.table_file(EPISODES, shard))]
        ids = dict(zip(then, episodes["episode_id"].to_pylist(), strict=True))
        known = _kept(store, shard, files, writer, ids)
        guidance = {place: _answer(writer, request, known) for place, request in requests.items()}
    else:
        guidance = write_guidance(writer, requests)
    return store_labels(root, run, LabelJob(shard, inputs, certified, guidance, {}))


@dataclass(frozen=True, slots=True)
class _Known:
    """What a teacher wrote about an episode, and the digest of what it was shown."""

    guidance: Guidance
    prompt_hash: str | None


def _kept(
    store: Store, shard: Shard, files: OlderFiles, writer: GuidanceWriter, ids: Mapping[str, str]
) -> dict[str, _Known]:
    """Return the stored texts of a writer by the ids that their episodes have now."""
    now = json.loads(json.dumps({**writer.config, "is_stand_in": writer.is_stand_in}))

    def is_its(row: Mapping[str, Any]) -> bool:
        """Whether the same model wrote a label; what it could not be told then is no difference."""
        told = json.loads(row.get("teacher_config") or "null")
        if row.get("teacher") != writer.name or not isinstance(told, dict):
            return False
        return told.items() <= now.items() and all("kind" in reason for reason in row["reject_reasons"])

    def renamed(row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, "episode_id": ids[row["episode_id"]]}

    labels: Rows = [renamed(row) for row in files.rows(store.table_file(LABELS, shard)) if is_its(row)]
    name = store.label_calls_file(shard)
    spent = [] if name is None else [to_row(renamed_call(row, ids[row["episode_id"]])) for row in files.rows(name)]
    texts = stored_guidance(labels, spent)
    return {row["episode_id"]: _Known(texts[row["episode_id"]], row.get("teacher_prompt_hash")) for row in labels}


def _answer(writer: GuidanceWriter, request: GuidanceRequest, known: Mapping[str, _Known]) -> Guidance:
    """Return the stored guidance where the writer would be shown the same now; otherwise it is owed, not asked for."""
    prompt, kept = writer.prompt(request), known.get(request.episode.episode_id)
    if kept is not None and prompt is not None and kept.prompt_hash == prompt.prompt_hash:
        return with_prompt(kept.guidance, writer, request)
    return Guidance("", Objection(UNANSWERED, "the teacher would be asked something else than it was"), prompt=prompt)
