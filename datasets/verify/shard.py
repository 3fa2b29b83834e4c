"""Verify one shard: run the stages of the build once more in memory, compare their tables, and prove each label apart.

The words of a model cannot be derived, so replies and guidance are taken from the rows; what follows from them (states,
rewards, frames, ids, labels, collages) is not. Stages read the stored tables before theirs, so that a wrong table is
named itself and not by what follows from it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from ...core.admission import missing
from ...core.errors import ImageError, StoreError
from ...core.identity import canonical_json
from ...core.images import codec, decode, frame_id
from ...core.storage import Address
from ...environments.base import Task
from ...rollouts.base import Status, StopReason
from ...rollouts.loop import roll_out_batch
from ..store.config import RunConfig, Shard
from ..store.dataset_rows import ShardSplit
from ..store.parquet import read_table
from ..store.run import RunEnv
from ..store.schema import CALLS, DATASET, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, TableSchema
from ..store.stages import ExportStage, LabelStage, Pending, RolloutStage
from ..store.store import Store, stored_failures
from ..store.tables import Rows, stored_verdict
from .compare import Same, differences, footer_problems, picture_problem, schema_differences
from .replay import replayed
from .report import Report


def verify_shard(
    root: Address,
    config: RunConfig,
    shard: Shard,
    tasks: Sequence[Task] | None,
    split: ShardSplit | None,
    follow: bool = False,
) -> Report:
    """Verify one shard of a store; every problem found is described, none raises.

    Args:
        root: the store.
        config: its run config.
        shard: what to verify.
        tasks: the levels of the shard, planned from the config once more; None to take the stored ones.
        split: facts of other shards that decide the splits of this one; None if they cannot be recomputed.
        follow: whether files of this machine that settings name are read.
    """
    report, store = Report(shard=shard), Store(root, config)
    try:
        _verify(store, shard, tasks, split, report, follow=follow)
    except MemoryError:
        raise
    except StoreError as error:
        report.problems.append(str(error))
    except Exception as error:  # noqa: BLE001
        # Contradictory rows break the derivation itself; earlier problems name them.
        report.problems.append(f"{shard.stem}: the rows do not fit together ({type(error).__name__}: {error})")
    return report


def _verify(
    store: Store, shard: Shard, tasks: Sequence[Task] | None, split: ShardSplit | None, report: Report, *, follow: bool
) -> None:
    stored = {schema: _read(store, name, schema, report) for name, schema in store.rollout_files(shard).items()}
    env = store.run.envs[shard.env]
    if refused_code(env, follow=follow):
        return  # the report of the store contains it
    report.checked |= {schema.name: stored[schema].num_rows for schema in (EPISODES, STEPS, FRAMES)}
    if env.config.repeats_exactly:
        _compare_rollouts(replayed(store, shard, stored, None, follow=follow), shard, tasks, stored, report)
    else:  # a simulator draws no picture twice: labels and dataset are derived from the stored rows alone
        report.simulated = True
        report.problems += _frame_problems(stored[FRAMES]) + cost_problems(stored[CALLS])
    expected = (shard.env, canonical_json(env.config.decisive()))
    settings = zip(stored[EPISODES]["env"].to_pylist(), stored[EPISODES]["env_config"].to_pylist(), strict=True)
    if not {*settings} <= {expected}:
        report.problems.append(
            f"{shard.stem}: rows with other settings than those of the run; labels and dataset were not derived from "
            "them"
        )
        return
    rows = store.read(LABELS, shard).to_pylist()
    replay = replayed(store, shard, stored, rows, follow=follow)
    _compare_labels(LabelStage(replay, shard), rows, report)
    report.prose = sum(
        bool(row["accepted"] and row["failure_reason"] and row["guidance_source"] != "facts") for row in rows
    )
    if split is None:
        return  # the sides of its episodes are unknown
    report.checked["training rows"] = 0
    for name, schema, made in ExportStage(replay, shard, split).make(Pending("")).tables:
        there = store.storage.stat(name) is not None
        table = _read(store, name, schema, report, made.schema) if there else made.slice(0, 0)
        same: dict[str, Same] = {path.split(".")[0]: _same_pictures for path in schema.image_paths}
        report.problems += differences(name, schema, table, made, same)
        report.checked["training rows"] += table.num_rows if schema is DATASET else 0


def _read(store: Store, name: str, schema: TableSchema, report: Report, expected: pa.Schema | None = None) -> pa.Table:
    """Read a table of the store and check its columns, their metadata and the footer of its file."""
    table = read_table(store.storage, name, schema)
    report.problems += schema_differences(name, table.schema, schema.arrow if expected is None else expected)
    report.problems += footer_problems(store.storage, name, schema, table)
    return table


def refused_code(env: RunEnv, *, follow: bool) -> dict[str, str]:
    """Return the code that an environment's settings name and that this call does not allow."""
    return missing((env.config if follow else env.config.without_locations()).code)


# Rollouts


def _compare_rollouts(
    store: Store, shard: Shard, tasks: Sequence[Task] | None, stored: Mapping[TableSchema, pa.Table], report: Report
) -> None:
    policy, tolerance = store.run.policy(), store.run.envs[shard.env].config.tolerance
    if tasks is None:  # the tasks of the stored episodes, in order
        rows = stored[EPISODES].select([each.name for each in fields(Task)]).to_pylist()
        tasks = list(dict.fromkeys(Task(**row) for row in rows))
    stage = RolloutStage(store, shard, tasks)
    only = None if policy.plays else frozenset(stored[EPISODES]["episode_id"].to_pylist())
    rollouts = roll_out_batch(stage.batch(Pending("", only)), policy)
    made = {each: table for _, each, table in stage.product(Pending(""), rollouts).tables}
    names = [name for schema in (EPISODES, STEPS, PROMPTS) for name in schema.names]
    near: dict[str, Same] = dict.fromkeys(names, _near(tolerance)) if tolerance else {}
    sizes = stored[FRAMES].select(["frame_id", "image", "byte_size"]).to_pylist()
    report.problems += [
        f"frames {row['frame_id']}: byte_size is {row['byte_size']}, found {len(row['image'] or b'')}"
        for row in sizes
        if row["byte_size"] != len(row["image"] or b"")
    ]
    same: dict[TableSchema, dict[str, Same]] = {
        EPISODES: near
        | {  # the text of a server, and a reply that broke the environment, are not stored
            "error": lambda *cells: all(isinstance(cell, str) for cell in cells),
            "stop_reason": lambda *cells: {*cells} <= {StopReason.POLICY_ERROR, StopReason.ENV_ERROR},
        },
        STEPS: near,
        FRAMES: {"image": _same_pictures, "byte_size": lambda *_: True},
        PROMPTS: near,
    }
    for schema, equalities in same.items():
        report.problems += differences(schema.name, schema, stored[schema], made[schema], equalities)
    # Times and costs differ between equal runs; of a model only who asked and when can be derived.
    columns = [name for name in CALLS.names if name not in COSTS[: 2 if policy.is_stand_in else None]]
    columns = columns if policy.is_stand_in else ["request_id", "episode_id", "t", "role"]
    episodes = stored[EPISODES].select(["episode_id", "num_steps", "status"]).to_pylist()
    broken = {row["episode_id"]: row["num_steps"] for row in episodes if row["status"] == Status.ERROR}
    calls = [_of_steps(table, broken).select(columns) for table in (stored[CALLS], made[CALLS])]
    report.problems += differences(CALLS.name, CALLS, *calls) + cost_problems(stored[CALLS])


def _of_steps(calls: pa.Table, broken: Mapping[str, int]) -> pa.Table:
    """Drop the reply that broke an episode: an earlier attempt may have had more of them."""
    kept = [row["t"] < broken.get(row["episode_id"], row["t"] + 1) for row in calls.to_pylist()]
    return calls.filter(pa.array(kept, type=pa.bool_()))


def _near(tolerance: float) -> Same:
    """Equality of cells whose numbers may be off by ``tolerance``, also within JSON."""

    def same(stored: Any, made: Any) -> bool:
        if isinstance(stored, float) and isinstance(made, float):
            return math.isclose(stored, made, rel_tol=0, abs_tol=tolerance)
        if isinstance(stored, list) and isinstance(made, list):
            return len(stored) == len(made) and all(map(same, stored, made))
        if isinstance(stored, dict) and isinstance(made, dict):
            return stored.keys() == made.keys() and all(same(stored[key], made[key]) for key in stored)
        if isinstance(stored, str) and isinstance(made, str) and stored[:1] in ("{", "[") and stored != made:
            try:
                return same(json.loads(stored), json.loads(made))
            except ValueError:
                return False
        return bool(stored == made)

    return same


COSTS = ("attempts", "latency", "prompt_tokens", "completion_tokens", "cost")
"""Columns of ``calls`` that differ between equal runs (the first two), or that a server reports."""


def cost_problems(calls: pa.Table) -> list[str]:
    """Describe impossible times, counts and costs of requests."""
    return [
        f"{CALLS.name} {row['request_id']}: column {name} holds {row[name]!r}, expected a finite number, not below zero"
        for row in calls.select(["request_id", *COSTS]).to_pylist()
        for name in COSTS
        if row[name] is not None and not 0 <= row[name] < math.inf
    ]


# Pictures


def _frame_problems(frames: pa.Table) -> list[str]:
    """Describe frames whose id, size or file does not match their pixels."""
    problems = []
    for row in frames.to_pylist():
        image = row["image"] or b""
        try:
            pixels = decode(image)
            strange = picture_problem(image, codec(row["format"]).encode(pixels), lossless=False)
        except ImageError as error:
            problems.append(f"frames {row['frame_id']}: the picture cannot be decoded ({error})")
            continue
        if frame_id(pixels) != row["frame_id"] or row["byte_size"] != len(image):
            strange = f"{len(image)} bytes hold a picture with the id {frame_id(pixels)}, stored as {row['byte_size']}"
        problems += [f"frames {row['frame_id']}: {strange}"] if strange else []
    return problems


def _same_pictures(stored: Any, made: Any) -> bool | str:  # a picture, a struct of one, or a list of them
    """Whether pictures show every reader the same, whatever their encoded bytes."""
    if stored == made:
        return True
    if isinstance(stored, list) and isinstance(made, list) and len(stored) == len(made):
        answers = (_same_pictures(one, other) for one, other in zip(stored, made, strict=True))
        return next((answer for answer in answers if answer is not True), True)
    if isinstance(stored, dict) and isinstance(made, dict):
        same_path = stored["path"] == made["path"]
        return _same_pictures(stored["bytes"], made["bytes"]) if same_path else f"it has the path {stored['path']!r}"
    if isinstance(stored, bytes) and isinstance(made, bytes):
        return picture_problem(stored, made) or True
    return "the pictures differ from the recomputed ones"


# Labels


def _compare_labels(stage: LabelStage, rows: Rows, report: Report) -> None:
    """Compare labels, their prompts and their requests with those of the stage, and prove each by a second search."""
    store, problems = stage.store, report.problems
    for name, schema, made in stage.make(Pending("")).tables:
        there = store.storage.stat(name) is not None
        stored = _read(store, name, schema, report) if there else made.slice(0, 0)
        if schema is CALLS:
            problems += _teacher_call_problems(name, stored, rows)
        else:
            problems += differences(schema.name, schema, stored, made)
    prover = store.run.envs[stage.shard.env].prover()
    episodes = {each.episode_id: each for each in stored_failures(store, stage.shard)}
    for label in rows:
        episode = episodes.get(label["episode_id"])
        if episode is None or label["pivot_step"] is None:
            continue
        if prover is None:
            report.unproved += 1
            continue
        proof = prover.prove(episode.case(), stored_verdict(label))
        report.unproved += proof.undecided is not None
        # A label stored as refuted is known to be wrong and is not training data.
        if label["proved"] is not False:
            problems += [f"labels {label['episode_id']}: {problem}" for problem in proof.problems]
    report.checked["labels"] = len(rows)


def _teacher_call_problems(name: str, calls: pa.Table, labels: Rows) -> list[str]:
    """Check that the requests of a teacher belong to the labels; their costs cannot be derived."""
    labelled = {row["episode_id"] for row in labels}
    return cost_problems(calls) + [
        f"{name}: request {call['request_id']} is none of a teacher about a label of this shard"
        for call in calls.to_pylist()
        if call["role"] != "teacher" or call["episode_id"] not in labelled
    ]
