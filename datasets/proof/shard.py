"""Verify one shard: derive every row anew from the run's config and prove every label by an independent search.

The replies of a real model cannot be derived, so they are taken as given; everything around them (parsing, states,
rewards, frames, ids, labels, collages) is. The replies of an embedded policy are derived too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...environments.base import Task
from ...errors import ImageError, PivotError, StoreError
from ...images import decode, frame_id
from ...labeling.base import FailedEpisode
from ...labeling.label import label_episodes
from ...rollouts.base import Status, StopReason
from ...rollouts.loop import roll_out_tasks
from ...solvers.base import Certificate, Prover, Verdict
from ..config import RunConfig, Shard
from ..export import dataset_file, dataset_tables
from ..parquet import read_table
from ..schema import CALLS, DATASET, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, STORE_TABLES, TableSchema
from ..store import DATASET_FOLDER, Store, shard_frames
from ..tables import failed_episodes, label_prompt_table, label_table, rollout_tables, steps_by_episode
from .compare import differences
from .replay import StoredGuidance, StoredReplies, stored_guidance


@dataclass(slots=True)
class ShardReport:
    """What was checked in one shard, and what was found."""

    shard: Shard
    problems: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    unproved: int = 0
    """Labels that no independent search could decide."""


BROKEN_ROWS = (PivotError, KeyError, ValueError, TypeError, IndexError, AttributeError)
"""What deriving anything from rows that contradict each other may raise."""


def verify_shard(
    root: Path, config: RunConfig, shard: Shard, tasks: Sequence[Task], sides: dict[str, str] | None
) -> ShardReport:
    """Verify one shard of a store; every problem found is described, none raises.

    Args:
        root: the store.
        config: its run config.
        shard: what to verify.
        tasks: the levels of the shard, planned anew from the config.
        sides: the side of the split of each episode; None where it cannot be told.
    """
    report = ShardReport(shard)
    store = Store(root, config)
    try:
        _verify_rollouts(store, shard, tasks, report)
        _verify_labels(store, shard, report)
        if sides is not None:
            _verify_dataset(store, shard, sides, report)
    except StoreError as error:
        report.problems.append(str(error))
    except BROKEN_ROWS as error:
        # Rows that contradict each other break the derivation itself; what was found before says where.
        report.problems.append(f"{shard.stem}: the rows do not fit together ({type(error).__name__}: {error})")
    return report


def _verify_rollouts(store: Store, shard: Shard, tasks: Sequence[Task], report: ShardReport) -> None:
    run, env = store.run, store.run.env(shard.env)
    stored = {schema: store.read(schema, shard) for schema in STORE_TABLES}
    counts = {schema.name: stored[schema].num_rows for schema in (EPISODES, STEPS, FRAMES)}
    report.checked |= counts
    report.problems += _frame_problems(stored[FRAMES])
    if not env.config.repeats_exactly:
        return  # a simulator draws no picture twice: labels and dataset are derived from the stored rows alone
    policy = run.policy()
    if not policy.is_stand_in:
        policy = StoredReplies(policy, steps_by_episode(stored[STEPS].to_pylist()))
    rollouts = roll_out_tasks(
        env.type, env.config, tasks, policy, run.config.rollouts, run_id=run.run_id, prompt=env.prompt
    )
    derived = rollout_tables(rollouts)
    keys = {EPISODES: ["episode_id"], STEPS: ["episode_id", "t"], FRAMES: ["frame_id"], PROMPTS: ["prompt_hash"]}
    for schema, key in keys.items():
        found, wanted = stored[schema], derived[schema]
        if schema is FRAMES:
            # Encoded bytes may differ between machines; pixels are checked below.
            found, wanted = found.drop(["image", "byte_size"]), wanted.drop(["image", "byte_size"])
        same = {"error": _both_texts, "stop_reason": _both_broke} if schema is EPISODES else None
        report.problems += differences(schema.name, key, found, wanted, same)
    report.problems += _call_problems(stored[CALLS], derived[CALLS], stored[EPISODES].to_pylist())


def _both_texts(stored: Any, derived: Any) -> bool:
    """Whether there is an error on both sides: what a server said about it cannot be derived anew."""
    return isinstance(stored, str) and isinstance(derived, str)


def _both_broke(stored: Any, derived: Any) -> bool:
    """Whether both episodes broke: a reply that broke the environment is not stored and cannot break it again."""
    return {stored, derived} <= {StopReason.POLICY_ERROR, StopReason.ENV_ERROR}


def _call_problems(stored: pa.Table, derived: pa.Table, episodes: list[dict[str, Any]]) -> list[str]:
    """Check that there is one call for each reply; what it cost and how long it took cannot be derived anew."""
    columns = ["request_id", "episode_id", "t", "role"]
    broken = {(row["episode_id"], row["num_steps"]) for row in episodes if row["status"] == Status.ERROR}
    # The reply that broke an episode made no step.
    made_a_step = [(row["episode_id"], row["t"]) not in broken for row in stored.to_pylist()]
    found = stored.filter(pa.array(made_a_step, type=pa.bool_()))
    return differences(CALLS.name, ["request_id"], found.select(columns), derived.select(columns))


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
    return problems


def _verify_labels(store: Store, shard: Shard, report: ShardReport) -> None:
    config = store.config
    stored = store.read(LABELS, shard)
    env, teacher = store.run.env(shard.env), store.run.writer()
    if not teacher.is_stand_in:
        teacher = StoredGuidance(teacher, stored_guidance(stored.to_pylist()))
    episodes = failed_episodes(store.read(EPISODES, shard), store.read(STEPS, shard))
    solver = env.solver()
    labels = label_episodes(
        episodes,
        solver,
        teacher,
        store.run.filters(),
        str(config.label_version),
        config.target_vocabulary,
        shard_frames(store, shard) if teacher.needs_pictures else None,
        env.prover(quick=True),
        config.log,
    )
    report.problems += differences("labels", ["episode_id"], stored, label_table(labels))
    prompts = read_table(store.storage, store.label_prompts_file(shard), PROMPTS)
    report.problems += differences("prompts", ["prompt_hash"], prompts, label_prompt_table(labels))
    report.problems += _teacher_call_problems(store, shard, stored)
    report.checked["labels"] = stored.num_rows
    _prove(env.prover(), stored.to_pylist(), episodes, report)


def _teacher_call_problems(store: Store, shard: Shard, labels: pa.Table) -> list[str]:
    """Check that the requests of a teacher model belong to the shard's labels; what they cost cannot be derived."""
    path = store.label_calls_file(shard)
    if path is None:
        return []
    known = set(labels["episode_id"].to_pylist())
    return [
        f"{path}: request {call['request_id']} is none of a teacher about a label of this shard"
        for call in read_table(store.storage, path, CALLS).to_pylist()
        if call["role"] != "teacher" or call["episode_id"] not in known
    ]


def _prove(
    prover: Prover | None, labels: list[dict[str, Any]], episodes: list[FailedEpisode], report: ShardReport
) -> None:
    """Prove each label from its stored rows alone, by a second implementation that shares nothing with the solver."""
    by_id = {episode.episode_id: episode for episode in episodes}
    for label in labels:
        episode = by_id.get(label["episode_id"])
        if episode is None or label["pivot_step"] is None:
            continue
        if prover is None:
            report.unproved += 1
            continue
        proof = prover.prove(episode.case(), stored_verdict(label))
        report.unproved += proof.undecided is not None
        # A label that is stored as refuted is known to be wrong, and no training data.
        if label["proved"] is not False:
            report.problems += [f"labels {label['episode_id']}: {problem}" for problem in proof.problems]


def stored_verdict(label: dict[str, Any]) -> Verdict:
    """Rebuild the verdict of a stored label row."""
    witness = label["witness"]
    return Verdict(
        pivot_step=label["pivot_step"],
        failure_mode=label["failure_mode"],
        certificate=Certificate(**label["certificate"]),
        secondary_modes=tuple(label["secondary_modes"] or ()),
        fallback=label["fallback"],
        infeasible_at_start=label["infeasible_at_start"],
        witness=None if witness is None else tuple(witness),
        feasible_actions=tuple(label["feasible_actions"] or ()),
    )


def _verify_dataset(store: Store, shard: Shard, sides: dict[str, str], report: ShardReport) -> None:
    rows = 0
    for (schema, side), derived in dataset_tables(store, shard, sides).items():
        path = dataset_file(DATASET_FOLDER, schema, shard, side)
        stored = read_table(store.storage, path, schema)
        same = dict.fromkeys(_image_columns(schema), _same_pictures)
        report.problems += differences(path, ["episode_id"], stored, derived, same)
        rows += stored.num_rows if schema is DATASET else 0
    report.checked["training rows"] = rows


def _image_columns(schema: TableSchema) -> set[str]:
    return {path.split(".")[0] for path in schema.image_paths}


def _same_pictures(stored: Any, derived: Any) -> bool:  # a picture or a list of them
    """Whether pictures show the same pixels, whatever their encoded bytes."""
    if isinstance(stored, list) and isinstance(derived, list):
        return len(stored) == len(derived) and all(map(_same_pictures, stored, derived))
    if not isinstance(stored, dict) or not isinstance(derived, dict):
        return stored == derived
    try:
        same = frame_id(decode(stored["bytes"])) == frame_id(decode(derived["bytes"]))
    except (ImageError, TypeError):
        return False
    return same and stored["path"] == derived["path"]
