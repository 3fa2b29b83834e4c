"""``pivot bound``: bounds on pivots by resampling, where no certificate is exact."""

from pathlib import Path
from typing import Any

import typer
from pydantic import Field, field_validator

from ..api import reading as api
from ..insight.probe.bounds import BoundSettings
from .console import ProgressBars, err, out, styled
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, registered


class BoundOptions(Options):
    """Options of ``pivot bound`` beside the settings of the search."""

    root: AddressField
    """Folder of a finished store, or its s3:// address."""
    out: Path
    """File for the bounds, one JSON line per failure."""
    policy: str = ""
    """Policy that plays the retries; by default that of the store."""
    policy_set: dict[str, Any] = Field(default_factory=dict)
    """Setting of the policy, such as model=NAME."""
    policy_service: dict[str, Any] = Field(default_factory=dict)
    """Setting of its model server, such as base_url=http://localhost:8000/v1."""
    check: bool = False
    """Execute the runs of an earlier file again and show what is wrong; play no retries."""

    @field_validator("policy")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        return registered("policies", name) if name else name


OPTIONS = Form("bound", BoundOptions, {"root": Flag(argument="DIR"), "check": Flag(off="-")})
SETTINGS = Form("search", BoundSettings, {"certified": Flag(off="-")})


@from_config(OPTIONS, SETTINGS)
def bound(options: BoundOptions, settings: BoundSettings) -> None:
    """Bound the pivots of failures by replaying them, for environments without exhaustive search.

    A retry that reaches the goal from step t proves that the pivot is t or later; the run is stored. Failed retries
    bound the chance of success of the policy that played them, and prove nothing about the pivot. Bounds are not
    labels.

    [bold]Examples[/]

    pivot bound runs/rooms --out bounds.jsonl

    pivot bound runs/mine --out bounds.jsonl --policy openai --policy-set model=my-vlm
    --policy-service base_url=http://localhost:8000/v1

    pivot bound runs/rooms --out bounds.jsonl --check
    """
    if options.check:
        problems = api.bound_problems(options.root, options.out)
        for problem in problems:
            err.print(styled(("✗", "red"), f" {options.out} {problem}"), soft_wrap=True)
        if problems:
            raise typer.Exit(1)
        out.print(f"every run of {options.out} reaches the goal again", soft_wrap=True)
        return
    with ProgressBars() as bars:
        result = api.bound(
            options.root,
            options.out,
            settings,
            policy=options.policy,
            policy_options=options.policy_set,
            policy_service=options.policy_service,
            reporter=bars,
        )
    proved = [row for row in result.rows if row.proven]
    out.print(
        f"{len(result.rows)} failures: {len(proved)} pivots are proven to be later than step 0; "
        f"{sum(row.retries for row in result.rows)} retries, {result.errors} not finished",
        soft_wrap=True,
    )
