"""Prove the rows of a probe again: every retry is re-executed, every return added up, every field recomputed.

The stored replies of the policy are taken as given. A new environment reaches the restored state by the logged actions
and executes the new ones; rewards, end, returns, lift and success follow.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import isclose
from typing import Any

from ...core.errors import NotAllowedError, StoreError
from ...core.records import from_row
from ...datasets.store.config import Shard
from ...datasets.store.parquet import read_table
from ...datasets.store.schema import EPISODES, LABELS, STEPS
from ...datasets.store.store import Store
from ...datasets.store.tables import steps_by_episode
from ...datasets.verify.statistics import statistics_problems
from ...environments.base import PivotEnv, Task
from ...labeling.replay import DisagreementError, Replayer
from ...rollouts.base import TaskRollouts
from ...rollouts.loop import Batch, run_batches
from ...rollouts.parser import parse_reply
from .arms import BOUND, PROBE_ARMS
from .bounds import bound_problems
from .rates import probe_settings
from .records import (
    FOLDER,
    PROBE,
    SETTINGS_FILE,
    ProbeSettings,
    Retry,
    RetryStatus,
    bounds_file,
    is_lift,
    probe_file,
    suffix_return,
)
from .rollback import rollback_policy
from .shard import ShardProbe


def probe_problems(store: Store, *, follow: bool = False) -> list[str]:
    """Return the problems of the probe of a store; none without a probe.

    With ``follow`` the locations that the settings of environments name are used, as in ``verify_store``.

    Raises:
        StoreError: a table cannot be read.
    """
    manifest = store.manifest()
    present = set(store.storage.listing(FOLDER))
    listed = {name for name in manifest if name.startswith(f"{FOLDER}/")}
    if SETTINGS_FILE not in listed:
        unfinished = f"the file is not in manifest.json: a probe did not finish; run: pivot probe {store.root}"
        return [f"{name}: {unfinished}" for name in sorted(present)]
    problems = [f"{name}: the file is not in manifest.json" for name in sorted(present - listed)]
    settings, shards = probe_settings(store), store.config.shards()
    expected = {SETTINGS_FILE, *map(probe_file, shards)}
    expected |= {bounds_file(shard) for shard in shards if BOUND in settings.arms}
    problems += [f"{name}: a file that a probe does not make" for name in sorted(listed - expected)]
    for shard in store.config.shards():
        if probe_file(shard) not in listed or (BOUND in settings.arms and bounds_file(shard) not in listed):
            problems.append(f"{probe_file(shard)}: the shard was not probed; run: pivot probe {store.root}")
            continue
        try:
            problems += _shard_problems(store, shard, follow=follow)
            if BOUND in settings.arms and store.run.env(shard.env).config.repeats_exactly:
                problems += bound_problems(store, shard, settings, follow=follow)
        except (NotAllowedError, StoreError) as error:
            problems.append(str(error))
        except Exception as error:  # noqa: BLE001 - a stranger's rows break what derives from them in any way
            problems.append(f"{probe_file(shard)}: the rows do not fit together ({type(error).__name__}: {error})")
    return problems


def _shard_problems(store: Store, shard: Shard, *, follow: bool) -> list[str]:
    name = probe_file(shard)
    rows = [from_row(Retry, row) for row in read_table(store.storage, name, PROBE).to_pylist()]
    tables = {schema: store.read(schema, shard) for schema in (EPISODES, STEPS, LABELS)}
    episodes = {row["episode_id"]: row for row in tables[EPISODES].to_pylist()}
    labels = {row["episode_id"]: row for row in tables[LABELS].to_pylist()}
    steps = steps_by_episode(tables[STEPS].to_pylist())
    settings = probe_settings(store)
    current = [row for row in rows if row.label_version == str(store.config.label_version)]
    problems = statistics_problems(store.storage, name, PROBE.arrow)
    problems += [f"{name}: {text}" for text in _count_problems(current, labels, settings)]
    env = store.run.env(shard.env)
    config = env.config if follow else env.config.without_locations()
    game = env.type(config)  # reads replies; a simulator behind it is not started to verify
    live = Replayer(game) if config.repeats_exactly else None
    tolerance = config.tolerance or 1e-9
    try:
        for row in current:
            episode, label = episodes.get(row.episode_id), labels.get(row.episode_id)
            if episode is None or label is None:
                continue  # counted above
            row_problems = _claims(row, episode, label)
            if not row_problems and row.status is RetryStatus.DONE:
                row_problems = _misread(game, row)
            if not row_problems and live is not None and row.status is RetryStatus.DONE:
                row_problems = _replayed(live, tolerance, row, episode, steps[row.episode_id], settings.gamma)
            problems += [f"{name} {row.retry_id}: {text}" for text in row_problems]
    finally:
        (live or game).close()
    if current and live is not None and not problems and config == env.config and store.run.policy().is_stand_in:
        problems += [f"{name} {text}" for text in _unlike_played_again(store, shard, settings, current, tolerance)]
    return problems


def _unlike_played_again(
    store: Store, shard: Shard, settings: ProbeSettings, rows: Sequence[Retry], tolerance: float
) -> list[str]:
    """Repeat all retries of an embedded policy, and compare every field of their rows.

    A model's answers cannot be repeated: failed retries of a served policy stay pending, and are counted.
    """
    policy = rollback_policy(store)
    work = ShardProbe(store, shard, settings, policy, {})

    def receive(_: Batch, records: list[TaskRollouts]) -> None:
        work.receive(records)

    asyncio.run(run_batches(work.batches(), policy, receive))
    stored = {row.retry_id: row for row in rows}
    problems: list[str] = []
    for row in work.rows:
        other = stored.get(row.retry_id)
        if other is None:
            problems.append(f"{row.retry_id}: the retry of {row.episode_id} in arm {row.arm} is there under another id")
            continue
        names = [each.name for each in fields(Retry)]
        different = [name for name in names if not _is_close(getattr(row, name), getattr(other, name), tolerance)]
        problems += [
            f"{row.retry_id}: its {each} is {getattr(other, each)!r}, recomputed it is {getattr(row, each)!r}"
            for each in different[:1]
        ]
    if not problems and [row.retry_id for row in work.rows] != [row.retry_id for row in rows]:
        problems.append("the rows are out of order")
    return problems


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values are equal, numbers within what an environment repeats of them."""
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=0, abs_tol=tolerance)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_is_close(*each, tolerance) for each in zip(one, other, strict=True))
    return one == other


def _count_problems(
    rows: Sequence[Retry], labels: Mapping[str, Mapping[str, Any]], settings: ProbeSettings
) -> list[str]:
    """Compare the retries of all failures with arms and resamples of the settings; nothing without rows."""
    if not rows:
        return []
    failures = [
        name
        for name, label in labels.items()
        if label["pivot_step"] is not None and (label["accepted"] or not settings.accepted_only)
    ]
    expected = {
        (name, arm, sample)
        for name in failures
        for arm in settings.arms
        if arm != BOUND
        for sample in range(settings.resamples)
    }
    stored = [(row.episode_id, row.arm, row.sample_idx) for row in rows]
    counts = Counter(stored)
    problems = [f"a retry of {each} is there twice" for each in sorted(set(stored)) if counts[each] > 1]
    problems += [f"the retry {each} is missing" for each in sorted(expected - set(stored))]
    return problems + [f"the retry {each} is none that the probe makes" for each in sorted(set(stored) - expected)]


def _claims(row: Retry, episode: Mapping[str, Any], label: Mapping[str, Any]) -> list[str]:
    """Compare the fields of a row that describe its failure with the failure."""
    kind = (label["certificate"] or {}).get("kind")
    expected = {"pivot_step": label["pivot_step"], "kind": kind, "task_id": episode["task_id"], "env": episode["env"]}
    problems = [
        f"its {name} is {getattr(row, name)!r}, that of the store {value!r}"
        for name, value in expected.items()
        if getattr(row, name) != value
    ]
    if row.arm not in PROBE_ARMS:
        return [*problems, f"its arm {row.arm!r} is none of a probe"]
    step = PROBE_ARMS[row.arm].step(row.episode_id, row.pivot_step, episode["num_steps"])
    if row.restore_step != step:
        problems.append(f"its restore_step is {row.restore_step}, that of the arm {step}")
    if (row.status is RetryStatus.NO_SUFFIX) != (step is None):
        problems.append(f"its status is {row.status.value}, but from step {step} there is something to be played")
    if PROBE_ARMS[row.arm].hint == "teacher" and row.hint != (label["failure_reason"] or ""):
        problems.append("its hint is not the guidance of the label")
    if PROBE_ARMS[row.arm].hint == "none" and row.hint is not None:
        problems.append("it has a hint in an arm without one")
    if row.status is not RetryStatus.DONE and any(
        getattr(row, name) is not None for name in ("lift", "success", "new_return", "rewards", "actions")
    ):
        problems.append("it was not played, but says what came of it")
    return problems


def _misread(game: PivotEnv, row: Retry) -> list[str]:
    """Parse the replies again and compare their actions with the row."""
    profile = game.profile
    read: list[tuple[str, str, bool]] = []
    for text in row.responses or []:
        parsed = parse_reply(
            text, profile.answer_tag, game.parse_action, profile.reply_limit, keeps_case=profile.keeps_case
        )
        action = parsed.action
        name, payload = (profile.unusable_action, None) if action is None else (action.name, action.payload)
        read.append((name, payload or "", parsed.action_valid))
    names = ("actions", "payloads", "action_valid")
    columns = [list(each) for each in zip(*read, strict=True)] or [[], [], []]
    return [
        f"its {name} differ from its responses"
        for name, column in zip(names, columns, strict=True)
        if column != list(getattr(row, name) or [])
    ][:1]


def _replayed(
    replayer: Replayer,
    tolerance: float,
    row: Retry,
    episode: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    gamma: float,
) -> list[str]:
    """Re-execute a retry and compare its rewards, returns and outcome."""
    start = row.restore_step or 0
    actions, payloads, rewards, valid = row.actions or [], row.payloads or [], row.rewards or [], row.action_valid or []
    if not len(actions) == len(payloads) == len(rewards) == len(valid) == len(row.responses or []):
        return ["its columns are of different lengths"]
    task = Task(**{each.name: episode[each.name] for each in fields(Task)})
    plays = [(step["action"], step["payload"], step["action_valid"]) for step in steps[:start]]
    plays += [(action, payload or None, ok) for action, payload, ok in zip(actions, payloads, valid, strict=True)]
    try:
        got, success = replayer.play(task.initial_state, task.instruction, plays)
    except DisagreementError as error:
        return [str(error)]
    problems: list[str] = []
    for t, (mine, stored) in enumerate(zip(got[start:], rewards, strict=True), start):
        if not isclose(mine, stored, rel_tol=0, abs_tol=tolerance):
            problems.append(f"step {t} gives {mine}, the row says {stored}")
    logged = [step["reward"] for step in steps]
    old, new = suffix_return(logged, start, gamma), suffix_return(list(rewards), 0, gamma)
    for name, value in (("old_return", old), ("new_return", new)):
        if not isclose(getattr(row, name), value, rel_tol=0, abs_tol=1e-9):
            problems.append(f"its {name} is {getattr(row, name)}, its rewards give {value}")
    if row.lift != is_lift(old, new):
        problems.append(f"its lift is {row.lift}, its returns give {is_lift(old, new)}")
    if row.success != success:
        problems.append(f"its success is {row.success}, played again it is {success}")
    return problems
