"""``pivot probe``: play failures again from the step where they were lost."""

from typing import Any

import typer
from pydantic import Field

from ..core.errors import PivotError
from ..datasets.store.config import PartConfig
from ..datasets.store.store import Store, stored_config
from ..flows import probe as probing
from ..insight.probe.bounds import bounds_of
from ..insight.probe.rates import (
    ARM_HEADER,
    arm_rates,
    arm_tables,
    arms_of,
    group_rows,
    probe_settings,
    probed_shards,
    refuted_labels,
    verdict_lines,
)
from ..insight.probe.records import BOUND, PROBE_ARMS, ProbeSettings, bounds_file
from .build import WORKERS
from .console import ProgressBars, err, out, quoted, show_table, styled
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, WorkerOptions


class ProbeOptions(Options):
    """Options of ``pivot probe`` beside the settings of the probe."""

    root: AddressField
    """Folder of a finished store, or its s3:// address."""
    show: bool = False
    """Show the stored results, and play nothing."""
    policy: str = ""
    """Policy that plays the retries of arm bound; by default that of the store."""
    policy_set: dict[str, Any] = Field(default_factory=dict)
    """Setting of the policy, such as model=NAME."""
    policy_service: dict[str, Any] = Field(default_factory=dict)
    """Setting of its model server, such as base_url=http://localhost:8000/v1."""


_ARMS = "; ".join(
    [
        *(f"{arm.name}: {arm.summary}" for arm in PROBE_ARMS.values()),
        f"{BOUND}: from steps that a bisection chooses, to prove that pivots without an exact certificate are late",
    ]
)
SETTINGS = Form("probe", ProbeSettings, {"arms": Flag("--arm", default="all but bound", help=f"Arm to play. {_ARMS}")})
OPTIONS = Form("options", ProbeOptions, {"root": Flag(argument="DIR")})


@from_config(OPTIONS, SETTINGS, WORKERS)
def probe(options: ProbeOptions, settings: ProbeSettings, workers: WorkerOptions) -> None:
    """Replay failures from the pivot and from the steps next to it, and report how often that improves the return.

    The policy of the store plays. Rows go to DIR/probe and into the manifest.
    Stored retries are kept: more arms or resamples, or a run after Ctrl-C, play only what is missing. Retries of a
    model cost as much as rollouts: (arms x resamples) suffixes per failure.

    [bold]Examples[/]

    pivot probe runs/first

    pivot probe runs/first --arm no_hint --arm after --resamples 8

    pivot probe runs/mine --arm bound --policy openai --policy-set model=my-vlm
    --policy-service base_url=http://localhost:8000/v1
    """
    root = options.root
    if not options.show:
        part = PartConfig(name=options.policy) if options.policy else stored_config(root).policy
        policy = {"options": part.options | options.policy_set, "service": part.service | options.policy_service}
        try:
            with ProgressBars() as bars:
                result = probing.probe(
                    root, settings, policy={"name": part.name, **policy}, reporter=bars, **workers.model_dump()
                )
        except PivotError as error:
            message = str(error).replace(" --base-url", " --policy-service base_url=URL")
            raise type(error)(message.replace(" --model", " --policy-set model=NAME")) from error
        err.print(f"{result.retries} retries, {result.played} of them played now")
    store = Store.open(root)
    _show_rates(store)
    _show_bounds(store)
    if new := len(store.config.shards()) - len(probed_shards(store)):
        err.print(f"{new} shards are newer than the probe; play them, too: pivot probe {quoted(root)}", soft_wrap=True)
    refuted = refuted_labels(store)
    for line in verdict_lines(refuted):
        out.print(line)
    for each in refuted:
        if each.alarm:
            err.print(styled(("alarm:", "bold red"), f" {each.env}: {', '.join(each.episodes)}"), soft_wrap=True)
    if any(each.alarm for each in refuted):
        raise typer.Exit(1)


def _show_rates(store: Store) -> None:
    groups, rates = arm_rates(store)
    if rates:
        for env, rows in arm_tables(rates).items():
            show_table(f"{env}: retries that return more, and that reach the goal", ARM_HEADER, rows)
        header = ("environment", "store", *arms_of(rates))
        show_table("Groups whose returns agree (σ = 0), %", header, group_rows(groups, rates, "sigma0"))
        show_table("Groups without a success, %", header, group_rows(groups, rates, "all_fail"))
        if store.run.policy().is_stand_in and any(each.arm in ("self", "teacher") for each in rates):
            out.print("the built-in policy reads no hints: its hinted arms differ from no_hint by chance alone")


def _show_bounds(store: Store) -> None:
    if BOUND not in probe_settings(store).arms:
        return
    shards = [shard for shard in store.config.shards() if bounds_file(shard) in store.listed]
    bounds = [row for shard in shards for row in bounds_of(store, shard).values()]
    err.print(
        f"{len(bounds)} failures in arm {BOUND}: {sum(row.proven > 0 for row in bounds)} pivots are proven to be later "
        f"than step 0; {sum(row.retries for row in bounds)} retries, {sum(not row.is_over for row in bounds)} searches "
        "not finished",
        soft_wrap=True,
    )
