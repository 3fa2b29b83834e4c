"""Verify the labels of one shard: the current ones, and those of older versions that were kept.

An older version is derived with the solver's settings that its own rows name, and with guidance as it was then; its
numbers are proved like those of the current one.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pyarrow as pa

from ...core import plugins
from ...core.plugins import read_settings
from ...labeling.action_log import LogDetail
from ...labeling.base import GuidanceRequest, GuidanceSource, GuidanceWriter, Label, RejectReason
from ...labeling.episode import FailedEpisode
from ...labeling.label import label_episodes
from ...labeling.vocabulary import Vocabulary
from ...labeling.writers import ModelWriter
from ...labeling.writers.model import VERSION as PROMPT_VERSION
from ...solvers.base import Certificate, Prover, Solver, Verdict
from ...solvers.provers import prover_of
from ..store.config import Shard, solver_settings, solver_type
from ..store.schema import CALLS, EPISODES, LABELS, PROMPTS, STEPS, TableSchema
from ..store.store import Store, shard_frames
from ..store.tables import Rows, failed_episodes, label_prompt_table, label_table
from .compare import differences, schema_differences
from .replay import StoredGuidance, stored_guidance
from .report import ShardReport


def verify_labels(store: Store, shard: Shard, report: ShardReport, stored: Mapping[TableSchema, pa.Table]) -> None:
    """Verify all labels of a shard, whose rollouts are ``stored``."""
    episodes = failed_episodes(stored[EPISODES], stored[STEPS], store.imports(shard))
    env, rows = store.run.env(shard.env), store.read(LABELS, shard)
    proved = are_current(store.run.writer(), rows.to_pylist())
    teacher = _teacher(store.run.writer(), rows.to_pylist(), proved=proved)
    wording = (store.config.target_vocabulary, store.config.log)
    source = store.config.guidance
    report.problems += _differences(store, shard, rows, episodes, env.solver(), teacher, wording, source)
    calls = store.label_calls_file(shard)
    if calls is not None:
        report.problems += _teacher_call_problems(store, calls, rows)
    report.checked["labels"] = rows.num_rows
    report.prose = _prose(store, rows)
    _prove(env.prover(), rows.to_pylist(), episodes, report)
    for version in store.older_versions:
        older = Store(store.root, store.config.model_copy(update={"label_version": version}))
        if store.storage.stat(older.table_file(LABELS, shard)) is not None:
            _verify_older(older, shard, episodes, stored[EPISODES], report)


def _prose(store: Store, rows: pa.Table) -> int:
    """Count the accepted labels whose guidance nothing proves: a teacher wrote it freely, or an earlier version."""
    texts = rows.select(["accepted", "failure_reason", "guidance_source"]).to_pylist()
    is_old = not are_current(store.run.writer(), rows.to_pylist())
    return sum(
        bool(row["accepted"] and row["failure_reason"] and (is_old or row["guidance_source"] != "facts"))
        for row in texts
    )


def _verify_older(
    store: Store, shard: Shard, episodes: list[FailedEpisode], rollouts: pa.Table, report: ShardReport
) -> None:
    """Verify labels of an older version; ``store`` is the store as it would be with that one."""
    table = store.read(LABELS, shard)
    rows = table.to_pylist()
    solver = store.run.env(shard.env).solver()
    if rows:
        solver = solver_type(shard.env)(solver_settings(shard.env, json.loads(rows[0]["solver_config"])))
    episodes = _labelled_then(rows, episodes, rollouts)
    teacher = _older_teacher(store, rows)
    now = (store.config.target_vocabulary, store.config.log)
    source: GuidanceSource = "prose" if any(row["guidance_source"] == "prose" for row in rows) else "facts"
    problems: list[str] = []
    # No row says which wording it was; nothing else of a version depends on it.
    for wording in sorted(product(get_args(Vocabulary), get_args(LogDetail)), key=lambda then: then != now):
        answers = _differences(store, shard, table, episodes, solver, teacher, wording, source)
        problems = answers if not problems or len(answers) < len(problems) else problems
        if not problems:
            break
    calls = f"{CALLS.name}/{shard.stem}-labels-v{store.config.label_version}.parquet"
    if store.storage.stat(calls) is not None:
        problems += _teacher_call_problems(store, calls, table)
    where = f"{store.labels_folder()}/{shard.file}: "
    report.problems += [problem if problem.startswith(where[:-2]) else where + problem for problem in problems]
    report.checked["older labels"] = report.checked.get("older labels", 0) + len(rows)
    _prove(prover_of(shard.env, solver.config), rows, episodes, report)


def _labelled_then(rows: Rows, episodes: list[FailedEpisode], rollouts: pa.Table) -> list[FailedEpisode]:
    """Return the episodes that were there when ``rows`` were made: a shard may have grown by whole levels since."""
    tasks = dict(zip(rollouts["episode_id"].to_pylist(), rollouts["task_id"].to_pylist(), strict=True))
    order = list(dict.fromkeys(tasks.values()))
    labelled = [order.index(tasks[row["episode_id"]]) for row in rows if row["episode_id"] in tasks]
    last = max(labelled, default=len(order))
    return [episode for episode in episodes if order.index(tasks[episode.episode_id]) <= last]


def stored_config(rows: Rows) -> dict[str, Any]:
    """Return the config of the teacher that wrote the texts of some rows, as they store it; empty if none has it."""
    config = json.loads(rows[0]["teacher_config"]) if rows and rows[0]["teacher_config"] else {}
    config.pop("is_stand_in", None)
    return config


def are_current(writer: GuidanceWriter, rows: Rows) -> bool:
    """Whether rows were written with this version's texts: those of an earlier one are no longer rendered."""
    config = stored_config(rows)
    if not config or rows[0]["teacher"] != writer.name:
        return True
    if writer.is_stand_in:
        return config.get("version") == writer.config.get("version")
    # The config of a model in this process would read the folder of its weights, which run.json names.
    now = PROMPT_VERSION if isinstance(writer, ModelWriter) else writer.config.get("prompt_version")
    return config.get("prompt_version") == now


def _teacher(writer: GuidanceWriter, rows: Rows, *, proved: bool) -> GuidanceWriter:
    """Return the writer of an embedded stand-in, or one that repeats what a model wrote, as its rows say.

    Texts that are not ``proved``, those of earlier versions, are repeated as they are stored.
    """
    if writer.is_stand_in and proved:
        return writer
    if rows and rows[0]["teacher"] == writer.name and not proved:
        return _Forgotten(writer, rows, proved=proved)
    return StoredGuidance(writer, stored_guidance(rows), stored_config(rows))


def _older_teacher(store: Store, rows: Rows) -> GuidanceWriter:
    """Return the writer that the rows of an older version name."""
    current, name = store.run.writer(), rows[0]["teacher"] if rows else None
    proved = bool(rows) and any(row["guidance_source"] for row in rows)
    if name is None or name == current.name:
        return _teacher(current, rows, proved=proved and are_current(current, rows))
    if name in plugins.names("writers"):
        kind = plugins.load("writers", name)
        writer = kind(read_settings(kind.config_type, {}, f"writer {name}: "))
        return _teacher(writer, rows, proved=proved and are_current(writer, rows))
    return _Forgotten(current, rows, proved=proved)


class _Forgotten(StoredGuidance):
    """A teacher of an earlier version or of other settings: its texts are taken as they are.

    What it was shown is unknown. Where its texts are not rendered from facts, the rules about texts have changed since,
    and their stored reasons stay.
    """

    def __init__(self, writer: GuidanceWriter, rows: Rows, *, proved: bool) -> None:
        self.proved = proved
        config = json.loads(rows[0]["teacher_config"])
        super().__init__(writer, stored_guidance(rows), config)
        self.name = rows[0]["teacher"]  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self.is_stand_in = bool(config.pop("is_stand_in", False))  # pyright: ignore[reportAttributeAccessIssue]

    def prompt(self, request: GuidanceRequest) -> None:
        """Return nothing: the settings that shaped it are not stored."""
        del request


def _differences(
    store: Store,
    shard: Shard,
    rows: pa.Table,
    episodes: list[FailedEpisode],
    solver: Solver,
    teacher: GuidanceWriter,
    wording: tuple[Vocabulary, LogDetail],
    source: GuidanceSource,
) -> list[str]:
    """Compare label rows and their prompts with recomputed ones."""
    config, (vocabulary, log) = store.config, wording
    rules, forgotten = store.run.filters(shard.env), isinstance(teacher, _Forgotten)
    unproved = isinstance(teacher, _Forgotten) and not teacher.proved
    unread = {rule.name for rule in rules if rule.judges_text} if unproved else set[str]()
    labels = label_episodes(
        episodes,
        solver,
        teacher,
        [rule for rule in rules if rule.name not in unread],
        str(config.label_version),
        vocabulary,
        shard_frames(store, shard) if teacher.needs_pictures else None,
        prover_of(shard.env, solver.config, quick=True),
        log,
        source,
    )
    if unproved:
        labels = judged_then(labels, rows.to_pylist(), unread)
    path, prompts_path = store.table_file(LABELS, shard), store.label_prompts_file(shard)
    prompts = store.read_file(prompts_path, PROMPTS)
    problems = schema_differences(path, rows.schema, LABELS.arrow)
    problems += schema_differences(prompts_path, prompts.schema, PROMPTS.arrow)
    derived, shown = label_table(labels), label_prompt_table(labels)
    if forgotten:
        derived = derived.drop(["teacher_prompt_hash", *(_GUIDANCE if unproved else ())])
        kept = set(shown["prompt_hash"].to_pylist())
        prompts = prompts.filter(pa.array([each in kept for each in prompts["prompt_hash"].to_pylist()], pa.bool_()))
    problems += differences("labels", ["episode_id"], rows, derived)
    return problems + differences("prompts", ["prompt_hash"], prompts, shown)


_GUIDANCE = ("guidance_source", "guidance_facts", "guidance_prose")
"""Columns that stores of release 0.1.0 lack."""


def judged_then(labels: Sequence[Label], rows: Rows, text_rules: Collection[str]) -> list[Label]:
    """Return labels with the stored reasons against their texts, in addition to the reasons against the labels."""
    stored = {row["episode_id"]: [RejectReason(**reason) for reason in row["reject_reasons"] or ()] for row in rows}
    judged: list[Label] = []
    for label in labels:
        then = stored.get(label.episode_id, [])
        about_labels = tuple(reason for reason in then if reason.name not in text_rules)
        reasons = tuple(then) if about_labels == label.reject_reasons else label.reject_reasons
        judged.append(replace(label, reject_reasons=reasons, accepted=label.pivot_step is not None and not reasons))
    return judged


def _teacher_call_problems(store: Store, path: str, labels: pa.Table) -> list[str]:
    """Check that the requests of a teacher model belong to the shard's labels; what they cost cannot be derived."""
    calls = store.read_file(path, CALLS)
    labelled = set(labels["episode_id"].to_pylist())
    return schema_differences(path, calls.schema, CALLS.arrow) + [
        f"{path}: request {call['request_id']} is none of a teacher about a label of this shard"
        for call in calls.to_pylist()
        if call["role"] != "teacher" or call["episode_id"] not in labelled
    ]


def _prove(prover: Prover | None, labels: Rows, episodes: Sequence[FailedEpisode], report: ShardReport) -> None:
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
        pivot_action=label["pivot_action"],
    )
