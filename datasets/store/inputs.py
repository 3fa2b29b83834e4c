"""Content of the receipts of a shard's stages: the digest of the inputs of its files, and counts of their rows.

Resume compares the digests, a summary adds up the facts, and ``verify`` derives both again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from ...core.identity import digest
from ...environments.base import Task
from ...labeling.analyzer import template_version
from ...labeling.base import UNANSWERED
from ...labeling.label import TEACHER
from ...rollouts.base import Status
from .config import FORMAT, RunConfig, Shard, filter_type
from .run import Run
from .schema import CALLS
from .store import DATASET_FOLDER, Store

ROLLOUT, LABEL, EXPORT = "rollout", "label", "export"

PENDING_EPISODES = "pending"
"""Fact of a receipt: ids of the episodes that ended in an error."""


def label_stage(config: RunConfig) -> str:
    """Name of the label stage in receipts: each label version has its own."""
    return f"{LABEL}-v{config.label_version}"


def export_stage(config: RunConfig, *, staged: bool) -> str:
    """Name of the export stage in receipts; ``staged`` for a dataset that is built beside the one in use."""
    return f"{EXPORT}-v{config.label_version}{'-staged' if staged else ''}"


def episodes_of(store: Store, shard: Shard) -> int:
    """Return the number of episodes of a shard; imported levels have fewer of them than the level with most."""
    receipt = store.receipt(ROLLOUT, shard) if store.is_imported else None
    return receipt.facts["episodes"] if receipt else (shard.stop - shard.first) * store.config.rollouts


def rollout_inputs(run: Run, shard: Shard, tasks: Sequence[Task]) -> str:
    """Return the digest of everything that decides the episodes of a shard."""
    env = run.env(shard.env)
    return digest(
        {
            "format": FORMAT,
            "run": run.run_ids(shard),
            "env": [shard.env, env.type.profile.version, env.config.decisive()],
            "policy": run.policy().config_for(shard.env),
            "prompt": [env.prompt.template, env.prompt.version],
            "tasks": [asdict(task) for task in tasks],
        }
    )


def rollout_facts(episodes: pa.Table) -> dict[str, Any]:
    """Count the episodes of a shard, and list the ids of the pending ones."""
    rows = episodes.select(["episode_id", "status", "failed"]).to_pylist()
    return {
        "episodes": len(rows),
        "succeeded": sum(row["failed"] is False for row in rows),
        "failed": sum(row["failed"] is True for row in rows),
        PENDING_EPISODES: [row["episode_id"] for row in rows if row["status"] == Status.ERROR],
    }


def label_inputs(store: Store, run: Run, shard: Shard, earlier: Mapping[str, Any] | None = None) -> str:
    """Return the digest of everything that decides the labels of a shard, whose rollouts have left their receipt.

    ``earlier`` is the config of a teacher of an earlier version in place of the run's.
    """
    env, teacher = run.env(shard.env), run.writer()
    solver, prover = env.solver(), env.prover(quick=True)
    return digest(
        {
            "format": FORMAT,
            "rollouts": _file_digests(store, ROLLOUT, shard),
            "solver": [solver.name, solver.version, solver.config],
            "teacher": [teacher.name, teacher.config if earlier is None else earlier],
            "guidance": run.config.guidance,
            "filters": [filter_type(name).__qualname__ for name in run.config.filters[shard.env]],
            "prover": None if prover is None else type(prover).__qualname__,
            "label_version": run.config.label_version,
            "target_vocabulary": run.config.target_vocabulary,
            "analyzer": template_version(run.config.log),
        }
    )


def label_facts(labels: pa.Table) -> dict[str, Any]:
    """Count the labels of a shard, and list the episodes whose teacher did not answer."""
    rows = labels.select(["episode_id", "pivot_step", "accepted", "proved", "reject_reasons"]).to_pylist()
    unanswered = (TEACHER, UNANSWERED)
    return {
        "labels": len(rows),
        "accepted": sum(row["accepted"] for row in rows),
        "rejected": sum(not row["accepted"] for row in rows),
        "unproved": sum(row["proved"] is None and row["pivot_step"] is not None for row in rows),
        UNANSWERED: [
            row["episode_id"]
            for row in rows
            if any((reason["name"], reason["kind"]) == unanswered for reason in row["reject_reasons"])
        ],
    }


def export_inputs(store: Store, run: Run, shard: Shard, sides: Mapping[str, str], folder: str = DATASET_FOLDER) -> str:
    """Return the digest of everything that decides a shard's part of the dataset under ``folder``."""
    return digest(
        {
            "format": FORMAT,
            "rollouts": _file_digests(store, ROLLOUT, shard),
            "labels": _file_digests(store, label_stage(run.config), shard),
            "include_infeasible": run.config.include_infeasible,
            "sides": sorted(sides.items()),
            "modes": run.failure_modes,
            "folder": folder,
        }
    )


def _file_digests(store: Store, stage: str, shard: Shard) -> dict[str, str]:
    """Digests of the files that a shard's earlier stage left; those of calls, which may differ freely, are left out."""
    receipt = store.receipt(stage, shard)
    files = receipt.files if receipt is not None else {}
    return {name: record.sha256 for name, record in files.items() if name.split("/")[0] != CALLS.name}
