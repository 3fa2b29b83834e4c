"""``pivot probe``: play failures again from the step where they were lost."""

import json
from typing import Annotated

import typer

from ..datasets.parts import members_of
from ..datasets.store import Store
from ..flows.engines.base import Workers, open_pool
from ..insight.probe.arms import DEFAULT_ARMS, PROBE_ARMS
from ..insight.probe.rates import arm_rates, refuted_labels
from ..insight.probe.records import ProbeSettings
from ..insight.probe.report import (
    ARM_HEADER,
    arm_tables,
    arms_of,
    group_rows,
    lift_rows,
    verdict_lines,
)
from ..insight.probe.run import checked_store, probe_store
from ..insight.stats import Format, csv_text
from ..plugins import read_settings
from .console import ProgressBars, err, out, show_table, styled, write_data
from .engines import WORKERS, ClusterAddress, EngineName
from .options import StorePath, option

_ARMS = "; ".join(f"{arm.name}: {arm.summary}" for arm in PROBE_ARMS.values())


def probe(
    root: StorePath,
    arm: Annotated[list[str] | None, option(f"Arm; again for more (default: all). {_ARMS}.", "--arm")] = None,
    resamples: Annotated[int, option("Retries of a failure in every arm.", "--resamples", min=1)] = 1,
    gamma: Annotated[float, option("Discount of suffix returns.", "--gamma")] = 1.0,
    accepted: Annotated[bool, option("Only failures whose label was accepted.", "--accepted")] = False,
    show: Annotated[bool, option("Play nothing: show what is there.", "--show")] = False,
    style: Annotated[Format, option("How to give it out.", "--format")] = Format.TABLE,
    workers: Annotated[int, option(WORKERS, "--workers", min=0)] = 0,
    engine: EngineName = "local",
    address: ClusterAddress = "",
) -> None:
    """Play failures again from the pivot and from the steps beside it, and say how often that lifts the return.

    The store's own policy plays. Rows go to DIR/probe, into the manifest, and are proved again by pivot verify. What is
    there is kept: more arms or resamples, or a run after Ctrl-C, only play what is missing. A model's retries cost as
    much as rollouts: (arms x resamples) suffixes a failure.

    [bold]Examples[/]

    pivot probe runs/first

    pivot probe runs/first --arm no_hint --arm after --resamples 8
    """
    if style is Format.PARQUET:
        raise typer.BadParameter(
            "pivot probe gives out a table, CSV or JSON; rows are in DIR/probe", param_hint="--format"
        )
    if not show:
        values = {"arms": tuple(arm or DEFAULT_ARMS), "resamples": resamples, "gamma": gamma, "accepted_only": accepted}
        settings = read_settings(ProbeSettings, values, "setting ")
        store = checked_store(root, settings)
        names = list(store.config.environments)
        crew = Workers(engine, address, workers)
        with open_pool(crew, names, root) as pool, ProgressBars() as bars:
            result = probe_store(root, settings, bars, pool.stream)
        err.print(f"{result.retries} retries, {result.played} of them played now")
    store = Store.open(root)
    others = [folder.rstrip("/") for folder in members_of(store) if folder]
    if others:
        said = (
            f"{root} grew by {len(others)} parts; this is its first one alone, the next: pivot probe {root / others[0]}"
        )
        err.print(said, soft_wrap=True)
    groups, rates = arm_rates(store)
    if style is Format.JSON:
        write_data(json.dumps([each.row() for each in rates], indent=2) + "\n")
    elif style is Format.CSV:
        rows = [each.row() for each in rates]
        write_data(csv_text(list(rows[0]), [list(row.values()) for row in rows]))
    else:
        for env, rows in arm_tables(rates).items():
            show_table(f"{env}: retries that return more, and that reach the goal", ARM_HEADER, rows)
        show_table("Suffix lift, %", ("environment", "fail", *arms_of(rates)), lift_rows(rates))
        header = ("environment", "store", *arms_of(rates))
        show_table("Groups whose returns agree (σ = 0), %", header, group_rows(groups, rates, "sigma0"))
        show_table("Groups without a success, %", header, group_rows(groups, rates, "all_fail"))
        if store.run.policy().is_stand_in and any(each.arm in ("self", "teacher") for each in rates):
            out.print("the embedded policy reads no hints: its hinted arms differ from no_hint by chance alone")
    refuted = refuted_labels(store)
    for line in verdict_lines(refuted):
        (err if style is not Format.TABLE else out).print(line)
    for each in refuted:
        if each.alarm:
            err.print(styled(("alarm:", "bold red"), f" {each.env}: {', '.join(each.episodes)}"), soft_wrap=True)
    if any(each.alarm for each in refuted):
        raise typer.Exit(1)
