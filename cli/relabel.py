"""``pivot relabel``: other labels for the same rollouts."""

from typing import Annotated, Any

from ..datasets.config import RunConfig, make_config
from ..datasets.run import Run
from ..flows.engines.base import Workers, open_pool
from ..flows.engines.local import execute_with
from ..flows.relabel import part_roots, relabel_parts
from . import model_flags as flags
from .console import ProgressBars, out
from .engines import WORKERS, ClusterAddress, EngineName
from .options import StorePath, option
from .results import show_result
from .settings import parse_setting, solver_settings


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
    Guidance that a model wrote stays, and no server is needed, where the same model would be asked the same. A store
    that grew by parts is labelled part by part, and seen as a whole when all are done.

    [bold]Examples[/]

    pivot relabel runs/first --split episode

    pivot relabel runs/first --infeasible --keep-old

    pivot relabel runs/first --log actions

    pivot relabel runs/rooms --solver navigation.threshold=1.0

    pivot relabel runs/first --refresh

    pivot relabel runs/first --teacher openai --teacher-model Qwen/Qwen3-VL-8B-Instruct
    --teacher-base-url http://localhost:8000/v1
    """
    configs = part_roots(root)
    environments = list({name: None for config in configs.values() for name in config.environments})
    change = models.teacher(teacher)
    shared = {
        "split": split,
        "target_vocabulary": target_vocabulary,
        "log": log,
        "include_infeasible": include_infeasible,
    }

    def changes(config: RunConfig) -> dict[str, Any]:
        made: dict[str, Any] = {name: value for name, value in shared.items() if value is not None}
        if teacher is not None or change.options or change.service:
            made["teacher"] = change.apply("teacher", config.teacher.model_dump())
        if solver:
            others = set(environments) - config.environments.keys()
            its = [each for each in solver if parse_setting("--solver", each)[0] not in others]
            made["solvers"] = solver_settings(config.solvers, its, list(config.environments))
        return made

    for config in configs.values():  # a mistake is told before workers are started
        made = changes(config)
        changed = Run(make_config(config.model_dump(mode="json") | made))
        if "teacher" in made:
            changed.writer().check()
    with ProgressBars() as bars, open_pool(Workers(engine, address, workers), environments, root) as pool:
        result = relabel_parts(root, changes, execute_with(pool), bars, keep_old=keep_old, refresh=refresh)
    if len(configs) > 1:
        out.print(f"all {len(configs)} parts of {root} are labelled again; here is the first one:", soft_wrap=True)
    show_result(result)
