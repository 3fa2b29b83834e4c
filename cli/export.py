"""``pivot export``: a store in the format of a trainer."""

from pydantic import field_validator

from ..api import reading as api
from ..datasets.store import Store
from .build import WORKERS
from .compact import CopyOptions
from .console import ProgressBars, out
from .from_config import Flag, Form, from_config
from .options import WorkerOptions, registered


class ExportOptions(CopyOptions):
    """Options of ``pivot export``."""

    format: str = "dataset"
    """Registered format: the dataset of PIVOT, or one of an installed package."""

    @field_validator("format")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        return registered("exporters", name)


EXPORT = Form("export", ExportOptions, {"root": Flag(argument="DIR")})


@from_config(EXPORT, WORKERS)
def export(options: ExportOptions, workers: WorkerOptions) -> None:
    """Write the labelled failures and episodes of a store in the format of a trainer, as a folder of Parquet files.

    The store stays as it is. A package adds a format with one class and an entry point in the group pivot.exporters.

    [bold]Example[/]

    pivot export runs/first --format dataset --out runs/first-export
    """
    Store.open(options.root)
    with ProgressBars() as bars:
        result = api.export(options.root, options.out, format=options.format, reporter=bars, **workers.model_dump())
    out.print(f"{len(result.files)} files with {result.rows} rows: {result.root}", soft_wrap=True)
