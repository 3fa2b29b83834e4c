"""``pivot relabel``: other labels for the same rollouts."""

from typing import Annotated, Any

from ..datasets.config import make_config
from ..datasets.run import Run
from ..datasets.store import Store
from ..flows.engines.base import Workers, open_pool
from ..flows.engines.local import execute_with
from ..flows.relabel import relabel_store
from . import model_flags as flags
from .console import ProgressBars
from .engines import WORKERS, ClusterAddress, EngineName
from .options import StorePath, option
from .results import show_result
from .settings import solver_settings


@flags.with_models("teacher")
def relabel(
    root: StorePath,
    teacher: Annotated[str | None, option("Another teacher.", "--teacher")] = None,
    *,
    models: flags.Models,
    split: Annotated[str | None, option("Another split: task or episode.", "--split")] = None,
    target_vocabulary: Annotated[
        str | None, option("Other words for failure modes in targets: certificate or paper.", "--target-vocabulary")
    ] = None,
    log: Annotated[
        str | None, option("What the Analyzer's log shows of a step: full, or its action alone: actions.", "--log")
    ] = None,
    solver: Annotated[list[str] | None, option("Solver setting ENV.KEY=VALUE; may be given again.", "--solver")] = None,
    include_infeasible: Annotated[
        bool | None,
        option("Whether episodes lost before any action are training data.", "--infeasible/--no-infeasible"),
    ] = None,
    refresh: Annotated[
        bool, option("Ask the teacher for all guidance anew, whatever store and call cache hold.", "--refresh")
    ] = False,
    keep_old: Annotated[bool, option("Keep the replaced labels beside the new ones.", "--keep-old")] = False,
    workers: Annotated[int, option(WORKERS, "--workers", min=0)] = 0,
    engine: EngineName = "local",
    address: ClusterAddress = "",
) -> None:
    """Label a finished store again, without new rollouts, as its next label version.

    Dataset and manifest are replaced in one step: a reader sees the old store or the new one, also after a kill.
    Guidance that a model wrote stays, and no server is needed, where the same model would be asked the same.

    [bold]Examples[/]

    pivot relabel runs/first --split episode

    pivot relabel runs/first --infeasible --keep-old

    pivot relabel runs/first --log actions

    pivot relabel runs/rooms --solver navigation.threshold=1.0

    pivot relabel runs/first --refresh

    pivot relabel runs/first --teacher openai --teacher-model Qwen/Qwen3-VL-8B-Instruct
    --teacher-base-url http://localhost:8000/v1
    """
    config = Store.open(root, complete=False).config
    changes: dict[str, Any] = {}
    change = models.teacher(teacher)
    if teacher is not None or change.options or change.service:
        changes["teacher"] = change.apply("teacher", config.teacher.model_dump())
        Run(make_config(config.model_dump(mode="json") | changes)).writer().check()
    if split is not None:
        changes["split"] = split
    if target_vocabulary is not None:
        changes["target_vocabulary"] = target_vocabulary
    if log is not None:
        changes["log"] = log
    if include_infeasible is not None:
        changes["include_infeasible"] = include_infeasible
    environments = list(config.environments)
    if solver:
        changes["solvers"] = solver_settings(config.solvers, solver, environments)
    Run(make_config(config.model_dump(mode="json") | changes))  # a mistake is told before workers are started
    with ProgressBars() as bars, open_pool(Workers(engine, address, workers), environments, root) as pool:
        result = relabel_store(root, changes, execute_with(pool), bars, keep_old=keep_old, refresh=refresh)
    show_result(result)
