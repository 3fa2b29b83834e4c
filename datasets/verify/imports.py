"""Verify the audit of an import: its counts, the evidence of each episode, and the evidence of the source.

The replay of a row and the kinds of the values that were recorded with it give again which turns are confirmed. That
the recording held these values, how replies with calls of tools were read, and what the user declared is taken as
stored.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ...environments.base import PivotEnv
from ...rollouts.confirm import Move, confirm
from ...rollouts.policies.imported import Evidence, LeftOut, evidence_of
from ..store.config import Shard
from ..store.imports import IMPORTS, audit_record
from ..store.schema import EPISODES, STEPS
from ..store.store import AUDIT, Store
from ..store.tables import Rows, steps_by_episode

_CONFIRMS = frozenset({*Evidence} - {Evidence.SUCCESS, Evidence.READ, Evidence.DECLARED, Evidence.PLAYED})
_LEAST_READ, _LEAST_SUCCESSES = 0.95, 3
_SLACK = Fraction(1, 100_000)
"""Tolerance of bounds, in movements: positions of simulators have seven digits."""


def import_problems(store: Store) -> list[str]:
    """Describe the differences between the audit of an import and its rows."""
    rows = [(shard, row) for shard in store.config.shards() for row in store.read(IMPORTS, shard).to_pylist()]
    stored = store.storage.read_json(AUDIT)
    derived = audit_record([row for _, row in rows], stored.get("options", {}), stored.get("remedies", []))
    problems = [] if derived == stored else [f"{AUDIT}: its counts are not those of the table {IMPORTS.name}"]
    for shard in store.config.shards():
        problems += _shard_problems(store, shard, [row for own, row in rows if own == shard and row["episode_id"]])
    by_env: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for _, row in rows:
        if row["turns"] is not None:
            by_env[row["env"] or ""].append(row)
        if row["bound"] is not None:
            problems += [f"{IMPORTS.name}: {row['place']}: {what}" for what in _bound_problems(row, row["bound"])]
    declares = stored.get("options", {}).get("evidence") == "declared"
    for env, mine in by_env.items():
        problems += [f"{AUDIT}: {env}: {what}" for what in _unearned(mine, declares=declares)]
    return problems


def _unearned(rows: Sequence[Mapping[str, Any]], *, declares: bool) -> Iterator[str]:
    """Yield the evidence of labels that the rows of an environment do not bear out."""
    claimed = {each for row in rows for each in row["evidence"] or ()}
    turns, unsettled = sum(row["turns"] or 0 for row in rows), [row for row in rows if not _is_settled(row)]
    unread = sum(row["unread_turns"] or 0 for row in unsettled)
    dropped = any(row["dropped_words"] for row in unsettled)
    if Evidence.READ in claimed and (turns - unread < _LEAST_READ * turns or dropped):
        yield f"evidence 'read' with {unread} of {turns} turns unread, or words dropped"
    won = [row for row in rows if row["recorded_success"]]
    if Evidence.SUCCESS in claimed and (len(won) < _LEAST_SUCCESSES or any(row["end_agrees"] is False for row in won)):
        yield "evidence 'success' without three recorded successes that all replay to success"
    if Evidence.DECLARED in claimed and not declares:
        yield "evidence 'declared', which the options of the import do not declare"


def _bound_problems(row: Mapping[str, Any], bound: Mapping[str, Any]) -> Iterator[str]:
    """Recompute the bound of an episode without division: the goal is lost where the way is longer than the reach."""
    step, near, left = Fraction(bound["step"]), Fraction(bound["threshold"]), bound["left"]
    ways = [Fraction(each) - near for each in bound["distances"]]
    is_failure = row["left_out"] == LeftOut.NO_STATE and row["recorded_success"] is False and min(ways) > 0 < step
    if bound["kind"] != "lower_bound" or not is_failure or not len(ways) == len(left) >= 2:
        yield "its bound is not one of a failure with a distance and a number of actions before and after each turn"
        return
    lost = [way > step * (most + _SLACK) for way, most in zip(ways, left, strict=True)]
    fatal = next((t for t in range(len(ways) - 1) if lost[t + 1] or lost[0]), None)
    first = len(ways) - 2 if fatal is None else fatal
    if (bound["pivot_step"], bound["fallback"]) != (first, fatal is None):
        yield f"pivot_step of its bound is {bound['pivot_step']}, its distances give {first}"
        return
    for name, way in (("before", ways[first]), ("after", ways[first + 1])):
        if not step * (bound[name] - 1 + _SLACK) < way <= step * (bound[name] + _SLACK):
            yield f"{name} of its bound is {bound[name]}, which does not fit {float(way):g} m to go"


def _is_settled(row: Mapping[str, Any]) -> bool:
    """Return whether recorded values confirm how the replies of an episode were read."""
    confirmed = (row["confirmed_turns"] or 0) >= max(1, (row["turns"] or 0) - 1)
    return confirmed or bool(row["recorded_success"] and row["end_agrees"])


def _shard_problems(store: Store, shard: Shard, rows: Rows) -> Iterator[str]:
    """Yield the episodes whose rows do not support the stored evidence."""
    episodes = {row["episode_id"]: row for row in store.read(EPISODES, shard).to_pylist()}
    steps = steps_by_episode(store.read(STEPS, shard).to_pylist())
    run = store.run.envs[shard.env]
    env = run.type(run.config)
    try:
        for row in rows:
            if {*(row["evidence"] or ())} & _CONFIRMS or row["confirmed_turns"]:
                yield from _row_problems(env, row, episodes[row["episode_id"]], steps[row["episode_id"]])
    finally:
        env.close()


def _row_problems(env: PivotEnv, row: Mapping[str, Any], episode: Mapping[str, Any], steps: Rows) -> Iterator[str]:
    bounds = [*row["turn_starts"], len(steps)]
    turns: list[list[Move]] = [
        [(step["action"], step["payload"]) for step in steps[first:stop]] for first, stop in pairwise(bounds)
    ]
    recorded = [kinds.split() for kinds in row["recorded_kinds"]][: len(turns) + 1]
    start = {"state": episode["initial_state"], "instruction": episode["instruction"]}
    derived, stored = confirm(env, start, turns, recorded), {*(row["evidence"] or ())} & _CONFIRMS
    name = f"{IMPORTS.name}: {row['place']}"
    if derived.turns != row["confirmed_turns"]:
        yield f"{name}: {derived.turns} turns are confirmed, the row says {row['confirmed_turns']}"
    own = {*evidence_of(derived.kinds)} if derived.whole or derived.open_end else set[Evidence]()
    is_won = bool(row["recorded_success"] and episode["success"]) and stored == {Evidence.END}
    if stored and stored != own and not is_won:
        said, confirmed = (", ".join(sorted(each)) or "nothing" for each in (stored, own))
        yield f"{name}: its values confirm {confirmed}, the row says {said}"
