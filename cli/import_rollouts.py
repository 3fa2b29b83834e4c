"""``pivot import``: rollouts of another program as a store."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from ..core.errors import ConfigError, PivotError
from ..flows.pipeline import BuildResult
from ..interop import run as importing
from ..interop.reading import Problem, Reading
from ..interop.run import ImportResult
from ..rollouts.policies.imported import Compared, LeftOut
from .build import WORKERS
from .console import ProgressBars, err, out, show_table, styled
from .from_config import Flag, Form, from_config
from .opening import allow_typed_code
from .options import AddressField, Options, PathField, WorkerOptions, registered
from .results import show_result
from .values import Values

_SHOWN_PROBLEMS = 20
"""Maximum number of problems on the screen; the store has a table of all."""


class ImportOptions(Options):
    """Options of ``pivot import``."""

    source: PathField
    """File or folder with the recorded episodes."""
    format: str = "jsonl"
    """Format of the source: jsonl (PIVOT's own, of pivot.Recorder), vagen (evaluation folders), openai (messages
    and images), verifiers (traces), inspect (.eval logs), verl (rollout_data_dir),
    or one of an installed package."""
    out: AddressField | None = None
    """Folder of the store, or its s3://, gs:// or az:// address; new, or begun by the same command."""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Setting of an environment in place of the recorded one."""
    require: tuple[Compared, ...] = (Compared.END, Compared.STATES)
    """Parts of the record that the replay of an episode has to agree in: end, states, rewards, frames. An episode that
    differs is left out."""
    option: dict[str, Any] = Field(default_factory=dict)
    """Setting of the format, such as env=sokoban, tag=answer, separator=, or actions_per_turn=3 for chats.
    pivot doctor FORMAT lists them."""
    model: str = ""
    """Model that acted."""
    dry_run: bool = False
    """Read and audit all episodes, show what the source would yield, and write nothing."""

    @field_validator("format")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        return registered("importers", name)


class ImportForm(Form[ImportOptions]):
    """The options of an import."""

    def resolve(self, values: Values) -> ImportOptions:
        """Check the values, and allow the code that --set names; see the base class."""
        options = super().resolve(values)
        for env in options.settings:
            allow_typed_code(values, env, ("settings", env))
        return options


IMPORT = ImportForm(
    "import",
    ImportOptions,
    {"source": Flag(argument="SOURCE"), "settings": Flag(name="--set", metavar="ENV.KEY=VALUE")},
)


@from_config(IMPORT, WORKERS)
def import_rollouts(options: ImportOptions, workers: WorkerOptions) -> None:
    """Read rollouts of your own trainer into a store, label every failure, with a certificate, and write a dataset.

    Every episode is replayed in PIVOT's environment from its recorded state or seed. One that cannot be read, or whose
    replay ends differently, is left out; the others are imported, and the exit status is then 1. Failures of
    navigation without a state get a lower bound from their distances. Run the same command again to resume.

    [bold]Examples[/]

    pivot import rollouts --out runs/mine

    pivot import rollouts/episodes.jsonl --dry-run

    pivot import chats.jsonl --format openai --option env=frozenlake --option tag=answer --out runs/chats

    pivot import rollouts --out runs/mine --set sokoban.horizon=20 --require end --require frames
    """
    if options.dry_run:
        reading = Reading(options.source, options.format, options.settings, options.require, options.option)
        with ProgressBars() as bars:
            reading.run(bars)
        if not (reading.audits or reading.problems):
            raise ConfigError(f"{options.source} holds no episode")
        _show_problems(reading.problems, all_of_them=False)
        _show_yield(reading.yields(), None, [each.text for each in reading.remedies], reading.repeated)
        return
    if options.out is None:
        raise ConfigError("no folder given; name the folder of the store with --out DIR")
    with ProgressBars() as bars:
        result = importing.import_rollouts(
            options.source,
            options.out,
            format=options.format,
            settings=options.settings,
            require=options.require,
            options=options.option,
            model=options.model,
            reporter=bars,
            **workers.model_dump(),
        )
    _show(options, result)


def _show(options: ImportOptions, result: ImportResult) -> None:
    """Show the left-out episodes, the agreement, and the store.

    Raises:
        ImportIncompleteError: episodes were left out.
        ConfigError: there are none.
    """
    lost = [problem for problem in result.problems if not problem.kept]
    _show_problems(lost, all_of_them=result.build is None)
    stateless = [problem for problem in result.problems if problem.kept and problem.kind is LeftOut.NO_STATE]
    if stateless:
        bounds = sum(problem.origin["bound"] is not None for problem in stateless)
        shown = f"{len(stateless)} episodes have distances and no state, {bounds} of them a lower bound on their pivot"
        out.print(f"{shown}; see them in the table imports", soft_wrap=True)
    for kind, counts in result.compared.items():
        if counts[True] or counts[False]:
            out.print(f"{kind}: {counts[True]} replays agree, {counts[False]} differ, {counts[None]} not recorded")
    if result.build is not None:
        show_result(result.build)
    _show_yield(result.yields, result.build, result.remedies, result.repeated)
    if lost:
        kinds = Counter(problem.kind for problem in lost)
        reasons = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        raise ImportIncompleteError(
            f"{len(lost)} of {len(result.problems) + result.episodes} episodes were left out ({reasons}); "
            "the others are in the store"
            if result.build is not None
            else f"no episode of {options.source} could be imported ({reasons})"
        )
    if result.build is None:
        raise ConfigError(f"{options.source} holds no episode")


def _show_problems(lost: Sequence[Problem], *, all_of_them: bool) -> None:
    """Show episodes that were left out, with their reasons."""
    shown = lost if all_of_them else lost[:_SHOWN_PROBLEMS]
    for problem in shown:
        err.print(styled(("✗", "red"), f" {problem.place}: {problem.detail} ({problem.kind})"), soft_wrap=True)
    if len(lost) > len(shown):
        err.print(f"… and {len(lost) - len(shown)} more; the table imports of the store has all of them")


def _show_yield(
    rows: Sequence[Mapping[str, Any]], build: BuildResult | None, remedies: Sequence[str], repeated: int
) -> None:
    """Show the yield, from reading to accepted labels, and what would increase it."""
    if not rows:
        return
    counts = {} if build is None else build.environments
    later = [] if build is None else ["failed", "labels", "accepted"]
    table = [[*row.values(), *(counts.get(row["environment"], {}).get(each, 0) for each in later)] for row in rows]
    show_table("yield", [*rows[0], *("labelled" if each == "labels" else each for each in later)], table)
    if repeated:
        out.print(f"{repeated} episodes were in the source more than once; the store has each once")
    for remedy in remedies:
        err.print(styled(("→", "yellow"), f" {remedy}"), soft_wrap=True)


class ImportIncompleteError(PivotError):
    """Some episodes of a source were left out."""

    status = 1
