"""The views that PIVOT derives from its tables: each declared once, with its SQL and the meaning of its columns.

The statement, the reference in ``docs/reference/store.md`` and the names for queries all come from :data:`DERIVED`. A
view may use those above it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...rollouts.base import GROUP_SIZE

_GROUP_KEY = "env, run_id, group_id, policy, policy_config, env_config"
"""A group id already separates policies and settings; imported rows are held to the same."""


@dataclass(frozen=True, slots=True)
class View:
    """One view: what a row of it is, what its columns mean, and how it is made."""

    doc: str
    sql: str
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Meaning of every column that no table declares; empty where the columns are those of tables."""
    by_shard: bool = False
    """Whether the rows of all shards together are the rows of the store: what a query needs of such a view is read
    once, shards at a time, and kept in memory while the store is open (:mod:`pivot.datasets.sql.views`)."""


_BLOCK_COLUMNS = {
    "env": "Environment name.",
    "run_id": "Id of the run.",
    "group_id": "Id of a prompt key under one policy and its settings.",
    "block": "Number of the block within the prompt key, from 0.",
    "task_id": "Level.",
    "goal_idx": "Index of the goal.",
    "eval_set": "Split of the task set.",
    "policy": "Policy that acted.",
    "rollouts": "Episodes in the block.",
    "whole": "Whether it has eight episodes.",
    "successes": "Episodes that succeeded.",
    "all_fail": "Whether none succeeded.",
    "sigma0": "Whether all returns agree when rounded to 8 decimals.",
    "mean_return": "Mean of the returns.",
    "std_return": "Population standard deviation of the returns.",
    "returns": "The returns, in order of sample index.",
}

DERIVED: dict[str, View] = {
    "failures": View(
        "Every label with its episode: the columns of `labels`, then those of `episodes`.",
        """
        SELECT l.*, e.* EXCLUDE (episode_id)
        FROM labels l JOIN episodes e USING (episode_id)""",
    ),
    "blocks": View(
        "The complete rollouts of one prompt key in order of sample index, cut into blocks of eight, never across "
        "runs, policies or settings. Episodes that ended in an error are in no block.",
        f"""
        WITH numbered AS (
            SELECT *,
                (row_number() OVER (PARTITION BY {_GROUP_KEY} ORDER BY sample_idx) - 1) // {GROUP_SIZE} AS block
            FROM episodes WHERE status = 'complete'
        )
        SELECT env, run_id, group_id, block, any_value(task_id) AS task_id, any_value(goal_idx) AS goal_idx,
            any_value(eval_set) AS eval_set, policy,
            count(*) AS rollouts,
            count(*) = {GROUP_SIZE} AS whole,
            count(*) FILTER (WHERE NOT failed) AS successes,
            bool_and(failed) AS all_fail,
            count(DISTINCT round(episode_return, 8)) = 1 AS sigma0,
            avg(episode_return) AS mean_return,
            stddev_pop(episode_return) AS std_return,
            list(episode_return ORDER BY sample_idx) AS returns
        FROM numbered GROUP BY {_GROUP_KEY}, block""",
        _BLOCK_COLUMNS,
        by_shard=True,
    ),
    "groups": View(
        "The whole blocks, over which group statistics are computed. Columns as in `blocks`.",
        "SELECT * EXCLUDE (rollouts, whole) FROM blocks WHERE whole",
    ),
    "ends": View(
        "How each episode ended: the columns of `episodes` from which rates of episodes are computed.",
        "SELECT env, status, stop_reason, failed FROM episodes",
        by_shard=True,
    ),
    "group_rates": View(
        "One row per environment, and a row `pooled` over all groups.",
        """
        WITH totals AS (
            SELECT env, count(*) FILTER (WHERE status = 'complete') AS episodes,
                avg((NOT failed)::INT) FILTER (WHERE status = 'complete') AS success_rate
            FROM ends GROUP BY ROLLUP (env)
        ), rates AS (
            SELECT env, count(*) FILTER (WHERE whole) AS groups, count(*) FILTER (WHERE NOT whole) AS short_blocks,
                coalesce(sum(rollouts) FILTER (WHERE NOT whole), 0)::BIGINT AS dropped,
                count(*) FILTER (WHERE whole AND all_fail) AS all_fail_groups,
                count(*) FILTER (WHERE whole AND sigma0) AS sigma0_groups
            FROM blocks GROUP BY ROLLUP (env)
        )
        SELECT coalesce(t.env, 'pooled') AS env, t.episodes, t.success_rate,
            coalesce(r.groups, 0) AS groups, coalesce(r.short_blocks, 0) AS short_blocks,
            coalesce(r.dropped, 0) AS dropped,
            r.all_fail_groups / nullif(r.groups, 0) AS all_fail_rate,
            r.sigma0_groups / nullif(r.groups, 0) AS sigma0_rate
        FROM totals t LEFT JOIN rates r ON t.env IS NOT DISTINCT FROM r.env
        ORDER BY t.env NULLS LAST""",
        {
            "env": "Environment name, or `pooled`.",
            "episodes": "Complete episodes (trajectories).",
            "success_rate": "Share of the complete episodes that succeeded.",
            "groups": "Whole groups.",
            "short_blocks": "Blocks of fewer than eight episodes, which are in no group rate.",
            "dropped": "Complete episodes in these short blocks.",
            "all_fail_rate": "Share of the groups without a success.",
            "sigma0_rate": "Share of the groups whose eight returns agree.",
        },
    ),
    "incomplete": View(
        "Episodes that are in no rate, because they ended in an error or were cut off before they were stored.",
        """
        SELECT env, status, stop_reason, count(*) AS episodes FROM ends WHERE status <> 'complete'
        GROUP BY ALL ORDER BY ALL""",
        {
            "env": "Environment name.",
            "status": "`error`, or `truncated` for imported episodes.",
            "stop_reason": "Reason of the end.",
            "episodes": "Number of episodes.",
        },
    ),
    "pivots": View(
        "Every pivot with the needed turns and the turns left: one row per label with a pivot, rejected labels too.",
        """
        SELECT episode_id, env, task_id, policy, failure_mode, pivot_step, num_steps, horizon,
            certificate.kind AS kind, certificate.unit AS unit,
            certificate.budget_before AS budget, certificate.before AS need,
            CASE WHEN certificate.unit <> 'score' THEN certificate.budget_before - certificate.before END AS slack,
            num_steps - 1 - pivot_step AS turns_after,
            (num_steps - 1 - pivot_step) / num_steps AS lead,
            accepted, proved, fallback, infeasible_at_start,
            certificate.reference_kind AS reference, certificate.reference_pivot AS reference_pivot,
            certificate.reference_before AS reference_need,
            coalesce(teacher, 'none') AS writer, length(failure_reason) AS guidance_characters,
            CASE WHEN len(evidence) > 0 THEN array_to_string(evidence, ', ') ELSE 'none' END AS evidence
        FROM failures WHERE pivot_step IS NOT NULL""",
        {
            "episode_id": "Episode.",
            "env": "Environment name.",
            "task_id": "Level.",
            "policy": "Policy that acted.",
            "failure_mode": "m*.",
            "pivot_step": "t*.",
            "num_steps": "Turns taken.",
            "horizon": "Turns allowed.",
            "kind": "Kind of the certificate.",
            "unit": "Unit of the need.",
            "budget": "Turns left before the pivot action.",
            "need": "Needed amount before the pivot action; null if the goal was out of reach.",
            "slack": "Budget minus need before the pivot action: turns that could still be wasted. Null for scores.",
            "turns_after": "Turns taken after the pivot, which stopping there would save.",
            "lead": "`turns_after` as a share of the episode's turns.",
            "accepted": "Whether the label is in the dataset.",
            "proved": "Whether an independent prover agreed; null where there is none.",
            "fallback": "Whether t* is the last step by convention, because no action was fatal.",
            "infeasible_at_start": "Whether the goal was out of reach from the start.",
            "reference": "Kind of the better reference stored with the certificate; null if there is none.",
            "reference_pivot": "Pivot step by the reference; null if it has none.",
            "reference_need": "Turns needed before the pivot action, by the reference.",
            "writer": "Writer of the guidance, or `none`.",
            "guidance_characters": "Length of the guidance.",
            "evidence": "The words of the column `evidence` of the label, or `none`.",
        },
        by_shard=True,
    ),
    "modes": View(
        "How often each failure mode was found; rejected labels count too.",
        """
        SELECT env, failure_mode, count(*) AS failures,
            count(*) / sum(count(*)) OVER (PARTITION BY env) AS share,
            avg(pivot_step) AS mean_pivot, avg(num_steps) AS mean_steps
        FROM pivots GROUP BY env, failure_mode ORDER BY env, failures DESC, failure_mode""",
        {
            "env": "Environment name.",
            "failure_mode": "m*.",
            "failures": "Labels with this mode.",
            "share": "Share of these among the environment's labels with a mode.",
            "mean_pivot": "Mean of t*.",
            "mean_steps": "Mean number of steps of these episodes.",
        },
    ),
    "modes_by_step": View(
        "How often each failure mode occurred at each step; rejected labels count too.",
        """
        SELECT env, failure_mode, pivot_step, count(*) AS failures,
            count(*) / sum(count(*)) OVER (PARTITION BY env) AS share
        FROM pivots GROUP BY env, failure_mode, pivot_step ORDER BY env, failure_mode, pivot_step""",
        {
            "env": "Environment name.",
            "failure_mode": "m*.",
            "pivot_step": "t*.",
            "failures": "Labels with this mode and step.",
            "share": "Share of these among the environment's labels with a mode.",
        },
    ),
    "pivot_steps": View(
        "How often the pivot is at each step; rejected labels count too.",
        """
        SELECT env, pivot_step, count(*) AS failures, count(*) / sum(count(*)) OVER (PARTITION BY env) AS share
        FROM pivots GROUP BY env, pivot_step ORDER BY env, pivot_step""",
        {
            "env": "Environment name.",
            "pivot_step": "t*.",
            "failures": "Labels with this step.",
            "share": "Share of these among the environment's labels with a pivot.",
        },
    ),
    "slack_at_pivot": View(
        "Turns that could still be wasted before the pivot action: one row per environment, unit and amount.",
        """
        SELECT env, unit, slack, count(*) AS failures, count(*) / sum(count(*)) OVER (PARTITION BY env) AS share
        FROM pivots WHERE slack IS NOT NULL GROUP BY env, unit, slack ORDER BY env, slack""",
        {
            "env": "Environment name.",
            "unit": "Unit of the need; a stage counts as one turn.",
            "slack": "Turns left before the pivot action, less the turns needed then.",
            "failures": "Labels with this slack.",
            "share": "Share of these among the environment's labels with a slack.",
        },
    ),
    "savings": View(
        "Turns that stopping at the pivot would save: one row per environment.",
        """
        SELECT env, count(*) AS failures, sum(num_steps)::BIGINT AS turns, sum(turns_after)::BIGINT AS turns_after,
            sum(turns_after) / sum(num_steps) AS saved, avg(lead) AS mean_lead
        FROM pivots GROUP BY env ORDER BY env""",
        {
            "env": "Environment name.",
            "failures": "Labels with a pivot.",
            "turns": "Turns of these episodes.",
            "turns_after": "Number of these that come after the pivot.",
            "saved": "Share of the turns that come after the pivot.",
            "mean_lead": "Mean over episodes of the share of turns after the pivot.",
        },
    ),
    "bound_quality": View(
        "Quality of inexact certificates that are stored with a better reference: one row per environment, kind and "
        "kind of reference; rejected labels count too.",
        """
        SELECT env, kind, reference, count(*) AS failures,
            count(*) FILTER (pivot_step = reference_pivot) AS agreeing,
            avg((pivot_step = reference_pivot)::INT) AS agreement,
            count(*) FILTER (pivot_step < reference_pivot) AS earlier,
            count(*) FILTER (pivot_step > reference_pivot) AS later,
            avg(pivot_step - reference_pivot) AS mean_delay,
            avg(reference_need - need) AS mean_gap
        FROM pivots WHERE reference_pivot IS NOT NULL
        GROUP BY ALL ORDER BY ALL""",
        {
            "env": "Environment name.",
            "kind": "Kind of the certificate.",
            "reference": "Kind of the reference.",
            "failures": "Labels that have both certificates.",
            "agreeing": "Labels whose pivot step is the reference's.",
            "agreement": "Share of the agreeing labels.",
            "earlier": "Labels whose pivot step comes before the reference's, as a heuristic's may.",
            "later": "Labels whose pivot step comes after it.",
            "mean_delay": "Mean number of steps by which the label's pivot is later than the reference's.",
            "mean_gap": (
                "Mean of `reference_before - before`, where the goal is within reach: needed turns that the "
                "certificate misses (a stage counts as one)."
            ),
        },
    ),
    "rejects": View(
        "One row per reason against a rejected label.",
        """
        SELECT env, episode_id, task_id, failure_mode, pivot_step, reason.name AS name, reason.kind AS kind,
            reason.detail AS detail
        FROM (SELECT *, unnest(reject_reasons) AS reason FROM failures WHERE NOT accepted)""",
        {
            "env": "Environment name.",
            "episode_id": "Episode.",
            "task_id": "Level.",
            "failure_mode": "m*; null without a verdict.",
            "pivot_step": "t*; null without a verdict.",
            "name": "Rule that rejected the label.",
            "kind": "Kind of the finding.",
            "detail": "Description of the finding.",
        },
        by_shard=True,
    ),
    "reject_kinds": View(
        "How often each rule rejected a label, by kind of finding.",
        "SELECT env, name, kind, count(*) AS labels FROM rejects GROUP BY ALL ORDER BY ALL",
        {
            "env": "Environment name.",
            "name": "Name of the rule.",
            "kind": "Kind of the finding.",
            "labels": "Labels that it rejected for this kind; one label may be rejected by several rules.",
        },
    ),
    "evidence": View(
        "Labels by what confirms their actions and level: one row per environment and list of words.",
        """
        SELECT env, evidence, count(*) AS labels, count(*) FILTER (WHERE accepted) AS accepted
        FROM pivots GROUP BY ALL ORDER BY ALL""",
        {
            "env": "Environment name.",
            "evidence": "The words of the column `evidence`, or `none`.",
            "labels": "Labels with these words.",
            "accepted": "Number of these that are in the dataset.",
        },
    ),
    "writers": View(
        "Labels of each guidance writer, and how many of them were accepted.",
        """
        SELECT env, writer, count(*) AS labels, count(*) FILTER (WHERE accepted) AS accepted,
            avg(accepted::INT) AS accepted_rate, avg(guidance_characters) AS mean_characters
        FROM pivots GROUP BY ALL ORDER BY ALL""",
        {
            "env": "Environment name.",
            "writer": "Writer of the guidance, or `none`.",
            "labels": "Labels with a pivot.",
            "accepted": "Number of these that are in the dataset.",
            "accepted_rate": "Share of the accepted labels.",
            "mean_characters": "Mean length of the guidance.",
        },
    ),
    "proofs": View(
        "How many labels an independent prover agreed with: one row per environment.",
        """
        SELECT env, count(*) AS failures, count(*) FILTER (WHERE proved) AS proved,
            count(*) FILTER (WHERE NOT proved) AS refuted, count(*) FILTER (WHERE proved IS NULL) AS unproved
        FROM pivots GROUP BY env ORDER BY env""",
        {
            "env": "Environment name.",
            "failures": "Labels with a pivot.",
            "proved": "Number of these that the prover proved a second time.",
            "refuted": "Number of these that it refuted; they are rejected.",
            "unproved": "Number of these without its verdict: no prover, or a level too large for it.",
        },
    ),
}
