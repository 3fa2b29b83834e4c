"""``pivot build``: roll out, label, export."""

from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError
from ..core.storage import Address, open_storage
from ..datasets.store.config import RunConfig
from ..datasets.store.store import RUN
from ..flows import build as building
from ..flows.engines.local import available_cores
from ..flows.engines.server import configured_server
from ..flows.pipeline import with_shards
from .console import ProgressBars, err
from .from_config import Form, from_config
from .options import AddressField, Options, WorkerOptions, address_of
from .results import show_plan, show_result
from .run_form import RunForm


class BuildOptions(Options):
    """Options of ``pivot build`` that decide no byte of the store."""

    out: AddressField | None = None
    """Folder of the store, or its s3://, gs:// or az:// address; new, or an unfinished one
    to resume."""
    refresh: bool = False
    """Remove the contents of the folder and build again from the beginning."""
    dry_run: bool = False
    """Show the plan, and write nothing."""
    prefect: bool | None = None
    """Run as a Prefect flow that is recorded; by default where a Prefect server is configured."""


def _begun_store(arguments: Mapping[str, Any]) -> Address | None:
    """Return the config of the store that a command without environments resumes; None where no store was begun."""
    out = arguments.get("build__out")
    if not out or arguments.get("run__envs"):
        return None
    root = address_of("--out", out)
    return None if open_storage(root).stat(RUN) is None else root / RUN


RUN_FORM = RunForm()
OPTIONS = Form("build", BuildOptions)
WORKERS = Form("workers", WorkerOptions, panels={"Engines": ("workers", "engine", "address")})


@from_config(RUN_FORM, OPTIONS, WORKERS, file_otherwise=_begun_store)
def build(config: RunConfig, options: BuildOptions, workers: WorkerOptions) -> None:
    """Roll out environments, label every failure, with a certificate, and write a dataset that a trainer can load.

    Run the same command again to resume after an interruption, or to grow the store with more tasks or environments.
    --out DIR alone resumes with the config of the store in DIR. Stores below one folder, such as one for each value of
    a setting, are read as one: pivot stats FOLDER.

    [bold]Examples[/]

    pivot build sokoban frozenlake --out runs/first

    pivot build sokoban --out runs/big --tasks 2000 --set sokoban.boxes=2 --set sokoban.rows=8 --set sokoban.cols=8

    pivot build navigation --out runs/thor --set navigation.backend=thor --set 'navigation.task_files=["base.json"]'

    pivot build frozenlake --out runs/pictures --log actions

    pivot build sokoban --out runs/mine --levels levels.xsb --set sokoban.horizon=60

    pivot build --config runs/first/run.json --out runs/copy

    pivot build --config settings.yaml --out runs/second

    pivot build --out runs/first --tasks 300

    pivot build sokoban --out runs/vlm --policy openai --model Qwen/Qwen2.5-VL-3B-Instruct
    --base-url http://localhost:8000/v1

    pivot build sokoban --out /shared/big --tasks 20000 --engine ray --address ray://head:10001
    """
    root = options.out
    if root is None:
        raise ConfigError("no folder given; name the folder of the store with --out DIR")
    if options.dry_run:
        for line in building.levels_read(config):
            err.print(line)
        show_plan(with_shards(config, root), root, workers.workers or available_cores())
        return
    with ProgressBars() as bars:
        prefect = configured_server() is not None if options.prefect is None else options.prefect
        result = building.build(
            config, root, refresh=options.refresh, reporter=bars, prefect=prefect, **workers.model_dump()
        )
    show_result(result)
