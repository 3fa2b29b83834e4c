"""``pivot export``: a store in the format of a trainer."""

from typing import Any

from pydantic import Field, field_validator

from ..flows import export as exporting
from .build import WORKERS
from .console import ProgressBars, out, quoted
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, WorkerOptions, registered


class ExportOptions(Options):
    """Options of ``pivot export``."""

    kind: str
    """Registered format: credit, corrections, pairs, privileged, processbench, analyzer or dataset."""
    store: AddressField
    """Folder of a finished store, or its s3:// address."""
    out: AddressField
    """Folder of the export, or its s3:// address; new, or an unfinished one to resume."""
    env: tuple[str, ...] = ()
    """Environment of the store to export; all by default."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Setting of the format, such as layout=swift."""

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        return registered("exporters", kind)


EXPORT = Form(
    "export",
    ExportOptions,
    {"kind": Flag(argument="KIND"), "store": Flag(argument="STORE"), "settings": Flag(name="--set")},
)


@from_config(EXPORT, WORKERS)
def export(options: ExportOptions, workers: WorkerOptions) -> None:
    """Write what a trainer takes from a store, as a Hugging Face dataset in a folder of its own.

    credit: needed turns, slack and a score per turn. corrections: certified actions in the agent's own prompts (TRL
    SFTTrainer, ms-swift, LLaMA-Factory). pairs: a safe reply against the fatal one (DPOTrainer). privileged: contexts
    for self-distillation. processbench: whole episodes with the first wrong step. analyzer: the dataset as chats. The
    store stays as it is; run the same command again to resume. Prove an export with: pivot verify STORE --export DIR

    [bold]Examples[/]

    pivot export pairs runs/first --out runs/first-pairs

    pivot export corrections runs/first --out runs/first-chats --env sokoban --set layout=chat
    """
    with ProgressBars() as bars:
        result = exporting.export(
            options.store,
            options.out,
            format=options.kind,
            settings=options.settings,
            environments=options.env,
            reporter=bars,
            **workers.model_dump(),
        )
    out.print(f"{len(result.files)} files with {result.rows} rows: {result.root}", soft_wrap=True)
    out.print(f"next:\n  pivot verify {quoted(options.store)} --export {quoted(options.out)}", soft_wrap=True)
