"""``pivot relabel``: new labels for the same rollouts."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.storage import parse_address
from ..datasets.store.config import RunConfig
from ..datasets.store.store import stored_config
from ..flows import relabel as relabelling
from ..flows.relabel import LabelChanges
from .build import WORKERS
from .console import ProgressBars
from .from_config import Flag, Form, from_config, parameter
from .model_flags import PartFlags
from .options import AddressField, Options, WorkerOptions
from .results import show_result
from .run_form import RUN_FLAGS, SOLVER_OPTION, put_solvers, read_run, refuse_other_shapes
from .values import Values


class RelabelOptions(Options):
    """Options of ``pivot relabel`` beside the changes of the labels."""

    root: AddressField
    """Folder of a finished store, or its s3:// address."""
    refresh: bool = False
    """Ask the teacher for all guidance again, even if the store or the call cache has it."""
    only_rejected: bool = False
    """Ask the teacher again where a label was rejected for its answer, and keep the other guidance."""


class RelabelForm(Form[Any]):
    """The options of the fields of a run config that decide labels alone."""

    def __init__(self) -> None:
        """Take the texts of the run config."""
        fields = [name for name in LabelChanges.model_fields if name not in ("teacher", "solvers")]
        texts = {name: RunConfig.model_fields[name].description or "" for name in fields}
        flags = {name: Flag(RUN_FLAGS.get(name, Flag()).name, help=text) for name, text in texts.items()}
        super().__init__("relabel", LabelChanges, flags, skip=("teacher", "solvers"))
        self.teacher = PartFlags("teacher", "--writer")

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        yield from super().parameters()
        yield parameter("relabel__solvers", list[str], SOLVER_OPTION)
        yield from self.teacher.parameters()

    def read(self, arguments: Mapping[str, Any], file: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the fields of the store's config that differ from now on; of a file, fields about labels are read.

        Raises:
            ConfigError: a value cannot be used; PluginError: a plugin cannot.
        """
        changes = {key: value for key, value in file.items() if key in self.keys}
        config = stored_config(parse_address(arguments.get("options__root") or file["root"]), complete=False)
        values = Values()
        values.put_all(config.model_dump(mode="json", exclude={*changes}), "run.json")
        values.put_all(changes, where)
        refuse_other_shapes(values, "solvers")
        self.put_flags(arguments, values)
        if self.teacher.changes(arguments):
            self.teacher.put(arguments, values)
        self.teacher.check(values)
        put_solvers(arguments.get("relabel__solvers") or (), values, list(config.environments))
        changed = read_run(values)
        return {
            name: changed.model_dump(mode="json")[name]
            for name in LabelChanges.model_fields
            if getattr(changed, name) != getattr(config, name)
        }


OPTIONS = Form("options", RelabelOptions, {"root": Flag(argument="DIR")})


@from_config(OPTIONS, RelabelForm(), WORKERS)
def relabel(options: RelabelOptions, changes: dict[str, Any], workers: WorkerOptions) -> None:
    """Label a finished store again, without new rollouts, as its next label version.

    Dataset and manifest are replaced in one step: a reader sees the old store or the new one, also after a kill.
    Guidance that a model wrote is kept, and no server is needed, if the same model would get the same request.

    [bold]Examples[/]

    pivot relabel runs/first --split episode

    pivot relabel runs/first --infeasible

    pivot relabel runs/first --log actions

    pivot relabel runs/rooms --solver navigation.threshold=1.0

    pivot relabel runs/first --refresh

    pivot relabel runs/first --only-rejected

    pivot relabel runs/first --writer openai --writer-model Qwen/Qwen3-VL-8B-Instruct
    --writer-service base_url=http://localhost:8000/v1
    """
    with ProgressBars() as bars:
        result = relabelling.relabel(
            options.root,
            changes,
            refresh=options.refresh,
            only_rejected=options.only_rejected,
            reporter=bars,
            **workers.model_dump(),
        )
    show_result(result)
