"""Verify one shard: recompute every row from the run's config and prove every label by an independent search.

The replies of a real model cannot be derived, so they are taken as given; everything around them (parsing, states,
rewards, frames, ids, labels, collages) is. The replies of an embedded policy are derived too.
"""

import io
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa
from PIL import Image

from ...core.admission import missing
from ...core.errors import ImageError, StoreError
from ...core.identity import canonical_json
from ...core.images import container_format, container_problem, decode, frame_id
from ...core.storage import Address
from ...core.storage.receipts import Receipt
from ...environments.base import Task
from ...rollouts.base import Policy, Status, StopReason
from ...rollouts.loop import roll_out_tasks
from ..export.dataset import dataset_tables
from ..store.config import RunConfig, Shard
from ..store.dataset_rows import ShardSplit, dataset_file, shard_sides
from ..store.inputs import (
    ROLLOUT,
    export_inputs,
    export_stage,
    label_facts,
    label_inputs,
    label_stage,
    rollout_facts,
    rollout_inputs,
)
from ..store.parquet import read_table
from ..store.run import RunEnv
from ..store.schema import (
    CALLS,
    DATASET,
    DATASET_EPISODES,
    EPISODES,
    FRAMES,
    LABELS,
    PROMPTS,
    STEPS,
    STORE_TABLES,
    TableSchema,
)
from ..store.split import SIDES
from ..store.store import DATASET_FOLDER, Store
from ..store.tables import rollout_tables, steps_by_episode
from .compare import Same, differences, schema_differences
from .labels import are_current, stored_config, verify_labels
from .limits import Limits, is_out_of_memory, within
from .replay import StoredReplies
from .report import ShardReport
from .statistics import size_problems, statistics_problems


def verify_shard(
    root: Address,
    config: RunConfig,
    shard: Shard,
    tasks: Sequence[Task] | None,
    split: ShardSplit | None,
    follow: bool = False,
    limits: Limits | None = None,
) -> ShardReport:
    """Verify one shard of a store; every problem found is described, none raises.

    Args:
        root: the store.
        config: its run config.
        shard: what to verify.
        tasks: the levels of the shard, planned again from the config; None to take the stored ones.
        split: facts of other shards that decide the splits of this one; None if they cannot be recomputed.
        follow: whether files of this machine that settings name are read.
        limits: the time and memory that it may take.
    """
    report, store, limits = ShardReport(shard), Store(root, config), limits or Limits()

    def work() -> list[str]:
        try:
            _verify(store, shard, tasks, split, report, limits, follow=follow)
        except StoreError as error:
            if is_out_of_memory(error):
                raise
            report.problems.append(str(error))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            # Rows that contradict each other break the derivation itself; earlier problems name them.
            report.problems.append(f"{shard.stem}: the rows do not fit together ({type(error).__name__}: {error})")
        return []

    report.problems += within(limits, f"shard {shard.stem}", work)
    return report


def _verify(
    store: Store,
    shard: Shard,
    tasks: Sequence[Task] | None,
    split: ShardSplit | None,
    report: ShardReport,
    limits: Limits,
    *,
    follow: bool,
) -> None:
    files = _files(store, shard)
    if reached := size_problems(store.storage, files, limits):
        report.problems += reached
        return
    stored = {schema: _read(store, store.table_file(schema, shard), schema, report) for schema in STORE_TABLES}
    if reached := _large_pictures(stored[FRAMES], limits):
        report.problems += reached
        return
    for name, schema in files.items():
        report.problems += statistics_problems(store.storage, name, schema.arrow)
    if refused_code(store.run.env(shard.env), follow=follow):
        return  # the report of the store says so
    tasks = stored_tasks(stored[EPISODES]) if tasks is None else tasks
    _verify_rollouts(store, shard, tasks, stored, report, follow=follow)
    as_configured = _settings_are_the_runs(store, shard, stored[EPISODES], report)
    if as_configured:
        verify_labels(store, shard, report, stored)
    sides = None if split is None else shard_sides(store, shard, split)
    if as_configured and sides is not None:
        _verify_dataset(store, shard, sides, report)
    _note_receipts(store, shard, tasks, sides, stored[EPISODES], report)


def refused_code(env: RunEnv, *, follow: bool) -> dict[str, str]:
    """Return the code that the settings of an environment name and that this call does not allow."""
    return missing((env.config if follow else env.config.without_locations()).code)


_CONCURRENT_EPISODES = 8
"""Episodes that are re-executed at the same time: each takes the memory of an environment, and perhaps of a thread."""

_PER_PIXEL = 24
"""Bytes of memory per pixel while a picture is decoded, converted and composed into others."""


def _large_pictures(frames: pa.Table, limits: Limits) -> list[str]:
    """Describe pictures that are too large to be decoded within the limit of memory, from their headers."""
    most = (limits.memory << 20) // _PER_PIXEL
    return [
        limits.problem(f"frames {name} of {pixels} pixels", "memory")
        for name, image in zip(frames["frame_id"].to_pylist(), frames["image"].to_pylist(), strict=True)
        if (pixels := _pixels(image or b"")) > most
    ]


def _pixels(image: bytes) -> int:
    """Return how many pixels the header of a picture states; 0 where it has none, which decoding reports."""
    try:
        with Image.open(io.BytesIO(image)) as picture:
            return picture.width * picture.height
    except Exception:  # noqa: BLE001 - untrusted bytes make decoders fail in many ways
        return 0


def stored_tasks(episodes: pa.Table) -> list[Task]:
    """Return the levels that stored episodes were made from, in order."""
    names = [each.name for each in fields(Task)]
    return list(dict.fromkeys(Task(**row) for row in episodes.select(names).to_pylist()))


def _files(store: Store, shard: Shard) -> dict[str, TableSchema]:
    """Return every Parquet file of a shard that readers open, with its schema."""
    files = store.rollout_files(shard)
    files |= dict(zip(store.label_files(shard), (LABELS, PROMPTS, CALLS), strict=False))
    for version in store.older_versions:
        files[f"{store.labels_folder(version)}/{shard.file}"] = LABELS
        files |= {f"{each.name}/{shard.stem}-labels-v{version}.parquet": each for each in (PROMPTS, CALLS)}
    exported = itertools.product((DATASET, DATASET_EPISODES), SIDES)
    return files | {dataset_file(DATASET_FOLDER, schema, shard, side): schema for schema, side in exported}


def _read(store: Store, name: str, schema: TableSchema, report: ShardReport) -> pa.Table:
    """Read a table of the store and check its schema to the last key."""
    table = read_table(store.storage, name, schema)
    report.problems += schema_differences(name, table.schema, schema.arrow)
    return table


def _settings_are_the_runs(store: Store, shard: Shard, episodes: pa.Table, report: ShardReport) -> bool:
    """Whether rows name the environment and settings of the run: others would be made, whatever they load."""
    expected = (shard.env, canonical_json(store.run.env(shard.env).config.decisive()))
    rows = set(zip(episodes["env"].to_pylist(), episodes["env_config"].to_pylist(), strict=True))
    if rows <= {expected}:
        return True
    report.problems.append(
        f"{shard.stem}: rows with other settings than those of the run; labels and dataset were not derived from them"
    )
    return False


def _verify_rollouts(
    store: Store,
    shard: Shard,
    tasks: Sequence[Task],
    stored: dict[TableSchema, pa.Table],
    report: ShardReport,
    *,
    follow: bool,
) -> None:
    run, env = store.run, store.run.env(shard.env)
    report.checked |= {schema.name: stored[schema].num_rows for schema in (EPISODES, STEPS, FRAMES)}
    report.problems += _frame_problems(stored[FRAMES])
    settings = env.config if follow else env.config.without_locations()
    if not settings.repeats_exactly:
        return  # a simulator draws no picture twice: labels and dataset are derived from the stored rows alone
    policy, policy_config = stored_policy(store, stored)
    rollouts = roll_out_tasks(
        env.type,
        settings,
        tasks,
        policy,
        run.config.rollouts,
        run_id=run.run_ids(shard, policy_config),
        prompt=env.prompt,
        only=None if policy.plays else set(stored[EPISODES]["episode_id"].to_pylist()),
        concurrency=_CONCURRENT_EPISODES,
    )
    derived = rollout_tables(rollouts)
    keys = {EPISODES: ["episode_id"], STEPS: ["episode_id", "t"], FRAMES: ["frame_id"], PROMPTS: ["prompt_hash"]}
    for schema, key in keys.items():
        actual, right = stored[schema], derived[schema]
        same: dict[str, Same] = {}
        if schema is FRAMES:
            # Encoded bytes may differ between machines; pixels and what else the file holds are checked apart.
            actual, right = actual.drop(["image", "byte_size"]), right.drop(["image", "byte_size"])
        elif settings.tolerance:
            same = dict.fromkeys(schema.names, _near(settings.tolerance))
        if schema is EPISODES:
            same |= {"error": _both_texts, "stop_reason": _both_broke}
        report.problems += differences(schema.name, key, actual, right, same)
    of_a_model = ["request_id", "episode_id", "t", "role"]
    derivable = [name for name in CALLS.names if name not in _COSTS]
    report.problems += _call_problems(
        stored[CALLS],
        derived[CALLS],
        stored[EPISODES].to_pylist(),
        derivable=[*derivable, "prompt_tokens", "completion_tokens", "cost"] if policy.is_stand_in else of_a_model,
    )


def stored_policy(store: Store, stored: dict[TableSchema, pa.Table]) -> tuple[Policy, dict[str, Any]]:
    """Return the policy of the run with its config; a model's replies, and how it was set, are taken from the rows.

    Raises:
        StoreError: the rows name another model than the run's config.
    """
    policy = store.run.policy()
    if policy.is_stand_in:
        return policy, policy.config
    texts = dict.fromkeys(stored[EPISODES]["policy_config"].to_pylist())
    unplayed: dict[str, Any] = {} if policy.plays else policy.config  # an import of bounds alone has no episodes
    config: dict[str, Any] = json.loads(next(iter(texts))) if texts else unplayed
    options = {name: value for name, value in store.config.policy.options.items() if value is not None}
    stored_options = {**config, **config.get("sampling", {})}
    wrong = [name for name, value in options.items() if stored_options.get(name, value) != value]
    if wrong:
        raise StoreError(f"episodes name a policy with another {wrong[0]} than run.json")
    return StoredReplies(policy, config, steps_by_episode(stored[STEPS].to_pylist())), config


def _near(tolerance: float) -> Same:
    """Equality of cells whose numbers may be off by ``tolerance``, also within JSON."""

    def same(stored: Any, derived: Any) -> bool:
        if isinstance(stored, float) and isinstance(derived, float):
            return math.isclose(stored, derived, rel_tol=0, abs_tol=tolerance)
        if isinstance(stored, list) and isinstance(derived, list):
            return len(stored) == len(derived) and all(map(same, stored, derived))
        if isinstance(stored, dict) and isinstance(derived, dict):
            return stored.keys() == derived.keys() and all(same(stored[key], derived[key]) for key in stored)
        if isinstance(stored, str) and isinstance(derived, str) and stored[:1] in ("{", "[") and stored != derived:
            try:
                return same(json.loads(stored), json.loads(derived))
            except ValueError:
                return False
        return bool(stored == derived)

    return same


def _both_texts(stored: Any, derived: Any) -> bool:
    """Return whether both cells have an error: the text of a server cannot be recomputed."""
    return isinstance(stored, str) and isinstance(derived, str)


def _both_broke(stored: Any, derived: Any) -> bool:
    """Whether both episodes broke: a reply that broke the environment is not stored and cannot break it again."""
    return {stored, derived} <= {StopReason.POLICY_ERROR, StopReason.ENV_ERROR}


_COSTS = ("attempts", "latency", "prompt_tokens", "completion_tokens", "cost")
"""Columns of ``calls`` that differ between equal runs, or that a server reports."""


_LATER_OF_CALLS = ("answered", "left_out")
"""Columns that are null in calls of older stores, also after a migration."""


def _call_problems(
    stored: pa.Table, derived: pa.Table, episodes: list[dict[str, Any]], *, derivable: Sequence[str]
) -> list[str]:
    """Check that there is one call per reply, with the ``derivable`` columns of the derived one and possible costs."""
    broken = {row["episode_id"]: row["num_steps"] for row in episodes if row["status"] == Status.ERROR}

    def made_a_step(calls: pa.Table) -> pa.Table:
        """Drop the reply that broke an episode: an earlier try may have made more of them."""
        kept = [row["t"] < broken.get(row["episode_id"], row["t"] + 1) for row in calls.to_pylist()]
        return calls.filter(pa.array(kept, type=pa.bool_())).select(derivable)

    same: dict[str, Same] = dict.fromkeys(_LATER_OF_CALLS, _null_or_equal)
    return differences(CALLS.name, ["request_id"], made_a_step(stored), made_a_step(derived), same) + cost_problems(
        stored
    )


def _null_or_equal(stored: Any, derived: Any) -> bool:
    """Accept a null in a column that calls of older stores do not have."""
    return stored is None or stored == derived


def cost_problems(calls: pa.Table) -> list[str]:
    """Describe times, counts and costs of requests that no request can have."""
    return [
        f"{CALLS.name} {row['request_id']}: column {name} holds {row[name]!r}, expected a finite number, not below zero"
        for row in calls.select(["request_id", *_COSTS]).to_pylist()
        for name in _COSTS
        if row[name] is not None and not 0 <= row[name] < math.inf
    ]


def _frame_problems(frames: pa.Table) -> list[str]:
    problems = []
    for row in frames.to_pylist():
        image = row["image"] or b""
        try:
            actual = frame_id(decode(image))
        except ImageError as error:
            problems.append(f"frames {row['frame_id']}: the picture cannot be decoded ({error})")
            continue
        if actual != row["frame_id"]:
            problems.append(f"frames {row['frame_id']}: the pixels have the id {actual}")
        if row["byte_size"] != len(image):
            problems.append(f"frames {row['frame_id']}: byte_size is {row['byte_size']}, found {len(image)}")
        if strange := container_problem(image, str(row["format"])):
            problems.append(f"frames {row['frame_id']}: {strange}")
    return problems


def _verify_dataset(store: Store, shard: Shard, sides: dict[str, str], report: ShardReport) -> None:
    rows = 0
    for (schema, side), derived in dataset_tables(store, shard, sides).items():
        path = dataset_file(DATASET_FOLDER, schema, shard, side)
        there = store.storage.stat(path) is not None
        stored = read_table(store.storage, path, schema) if there else derived.slice(0, 0)
        report.problems += schema_differences(path, stored.schema, derived.schema)
        same: dict[str, Same] = dict.fromkeys(_image_columns(schema), _same_pictures)
        report.problems += differences(path, ["episode_id"], stored, derived, same)
        rows += stored.num_rows if schema is DATASET else 0
    report.checked["training rows"] = rows


def _image_columns(schema: TableSchema) -> set[str]:
    return {path.split(".")[0] for path in schema.image_paths}


def _same_pictures(stored: Any, derived: Any) -> bool | str:  # a picture or a list of them
    """Whether pictures show the same pixels and their files nothing else, whatever their encoded bytes."""
    if stored == derived:
        return True
    if isinstance(stored, list) and isinstance(derived, list) and len(stored) == len(derived):
        answers = (_same_pictures(one, other) for one, other in zip(stored, derived, strict=True))
        return next((answer for answer in answers if answer is not True), True)
    if isinstance(stored, dict) and isinstance(derived, dict):
        return _picture_problem(stored, derived) or True
    return "the pictures differ from the recomputed ones"


def _picture_problem(stored: dict[str, Any], derived: dict[str, Any]) -> str | None:
    if stored["path"] != derived["path"]:
        return f"it has the path {stored['path']!r}, recomputed {derived['path']!r}"
    try:
        if frame_id(decode(stored["bytes"])) != frame_id(decode(derived["bytes"])):
            return "its pixels differ from the recomputed ones"
    except (ImageError, TypeError) as error:
        return f"it cannot be decoded ({error})"
    return container_problem(stored["bytes"], container_format(derived["bytes"]))


def _note_receipts(
    store: Store,
    shard: Shard,
    tasks: Sequence[Task],
    sides: dict[str, str] | None,
    episodes: pa.Table,
    report: ShardReport,
) -> None:
    """Derive what the receipts of a shard say; digests of what decided its files only where nothing is a model."""
    run, stand_ins = store.run, store.run.policy().is_stand_in and store.run.writer().is_stand_in
    inputs = rollout_inputs(run, shard, tasks) if stand_ins else ""
    report.receipts[ROLLOUT] = Receipt(inputs, {}, rollout_facts(episodes))
    labels = store.read(LABELS, shard)
    teacher = None if are_current(run.writer(), rows := labels.to_pylist()) else stored_config(rows)
    inputs = label_inputs(store, run, shard, teacher) if stand_ins else ""
    report.receipts[label_stage(store.config)] = Receipt(inputs, {}, label_facts(labels))
    if sides is None:
        return  # the rows of the export are unknown
    for staged in (True, False):
        folder = store.staged_folder if staged else DATASET_FOLDER
        inputs = export_inputs(store, run, shard, sides, folder) if stand_ins else ""
        facts = {"rows": report.checked.get("training rows", 0)}
        report.receipts[export_stage(store.config, staged=staged)] = Receipt(inputs, {}, facts)
