"""A store on disk: where every table's shards lie, what is done, and how to read it.

``DIR/<table>/<env>/<shard>.parquet`` for the rollout tables, ``DIR/labels/v<N>/<env>/<shard>.parquet`` for labels,
``DIR/dataset`` for the export. A shard has one file of each rollout table; of labels, their prompts and calls, and the
dataset it has a file where there are rows. ``DIR/run.json`` is the config, ``DIR/manifest.json`` (written last) the
proof that the store is whole; ``DIR/.receipts`` lets an interrupted build go on where it stopped.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core import admission, plugins
from ...core.errors import ConfigError, NoStoreError, PluginError, StoreError
from ...core.messages import Role
from ...core.plugins import STORED, WORD
from ...core.storage import Address, FileRecord, Storage, Url, open_storage
from ...core.storage.base import Receipt
from ...core.storage.commit import Step, refuse_interrupted, roll_forward
from ...labeling.episode import FailedEpisode
from ...rollouts.base import Policy
from .config import FORMAT, PartConfig, RunConfig, Shard, make_config, part_type, versions
from .location import DATASET_FOLDER, MANIFEST, ORIGIN, RUN, marks_in, no_store, read_manifest, refuse_unfinished
from .parquet import check_file, read_table
from .run import Run
from .schema import CALLS, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, STORE_TABLES, TableSchema
from .tables import FAILURE_COLUMNS, FAILURE_STEP_COLUMNS, check_rows, failed_episodes

if TYPE_CHECKING:
    import polars as pl

DATABASE = "pivot.duckdb"
AUDIT = "audit.json"
"""Audit of the source of an import; only an imported store has it."""
RECEIPTS = ".receipts"
PROBE_FOLDER = "probe"
"""Folder of a probe; the manifest proves only that its files are unchanged."""
PLAYED = "rollout"
"""Stage whose receipt says that a shard is played."""

NAMED_FILES = 256
"""Files that a view, or a config of the card, names one by one. Where there are more they get patterns, so that
``pivot.duckdb`` and the card stay small; ``pivot verify`` proves that nothing else fits these."""

_LABEL_FILE = re.compile(r"labels/.*|(?:prompts|calls)/.*-labels-v\d+\.parquet")
"""Names of the files that a shard has only where they hold rows."""

_STAGED = re.compile(rf"\.{DATASET_FOLDER}-v(\d+)")
_OLD_LABELS = re.compile(rf"labels/v(\d+)|(?:prompts|calls)/{WORD.pattern}/\d{{5,}}-labels-v(\d+)\.parquet")


@dataclass(frozen=True)
class StoreFrames:
    """Lazy polars frames over every table of a store (docs/reference/store.md lists the columns)."""

    episodes: "pl.LazyFrame"
    steps: "pl.LazyFrame"
    frames: "pl.LazyFrame"
    prompts: "pl.LazyFrame"
    calls: "pl.LazyFrame"
    labels: "pl.LazyFrame"
    """Labels of the current version."""


@dataclass(frozen=True)
class Store:
    """An open store: its files and its config; it may be unfinished.

    Between processes it travels as its address and config, and each process opens it once.
    """

    root: Address
    config: RunConfig
    resolved: Run | None = field(default=None, compare=False, repr=False)
    """The run of ``config`` where the caller has resolved it already."""
    played: tuple[Shard, ...] | None = field(default=None, compare=False, repr=False)
    """Shards to read where not all are there yet; see :meth:`open_played`."""

    def __reduce__(self) -> tuple[Callable[[Address, RunConfig], "Store"], tuple[Address, RunConfig]]:
        """Pickle as address and config."""
        return open_once, (self.root, self.config)

    def with_service(self, role: Role, **fields: Any) -> "Store":
        """Return the store with other service settings of a model, which decide no byte, where it has them."""
        name = "policy" if role == "student" else "teacher"
        if not (service := self.run.services(role)) or not fields.keys() <= type(service[0]).model_fields.keys():
            return self
        part: PartConfig = getattr(self.config, name)
        changed = part.model_copy(update={"service": {**part.service, **fields}})
        return Store(self.root, self.config.model_copy(update={name: changed}))

    @cached_property
    def storage(self) -> Storage:
        """Where the files are; every one of them is read and written through it."""
        return open_storage(self.root)

    @classmethod
    def open(cls, root: Address, *, complete: bool = True, checked: bool = False) -> "Store":
        """Open an existing store; ``checked`` says that the folder was searched for links already.

        Raises:
            StoreError: the store is missing, unfinished (unless ``complete`` is False), lacks a readable ``run.json``,
                or holds a link or a special file.
            ConfigError, PluginError: the config in ``run.json`` cannot be used here.
        """
        return cls(root, stored_config(root, complete=complete, checked=checked))

    @classmethod
    def open_played(cls, root: Address) -> "Store":
        """Open a store for a look: of an unfinished one, which a build may write meanwhile, the shards that are played.

        Raises:
            StoreError: none is played yet, or as :meth:`open`. ConfigError, PluginError: as :meth:`open`.
        """
        storage = open_storage(root)
        if storage.stat(RUN) is None or any(map(storage.stat, (MANIFEST, ORIGIN, *marks_in(storage)))):
            return cls.open(root)  # refuses what a build does not finish
        store = cls(root, stored_config(root, complete=False))
        done = storage.listing(f"{RECEIPTS}/{PLAYED}")
        played = tuple(shard for shard in store.config.shards() if store.receipt_file(PLAYED, shard) in done)
        if not played:
            raise NoStoreError(f"{root}: no shard of {len(store.config.shards())} is played yet; look again later")
        return cls(root, store.config, played=played)

    @property
    def shards(self) -> Sequence[Shard]:
        """The shards that readers show."""
        return self.config.shards() if self.played is None else self.played

    @cached_property
    def run(self) -> Run:
        """The config, resolved; stages take environments, policy and teacher from here.

        Raises:
            ConfigError, PluginError: it cannot be carried out here; the message names ``run.json``.
        """
        if self.resolved is not None:
            return self.resolved
        try:
            return Run(self.config, home_of(self.root))
        except (ConfigError, PluginError) as error:
            raise type(error)(f"{self.storage.address(RUN)}: {error}") from error

    @property
    def stored_run_id(self) -> str:
        """The run id in ``run.json``; unlike that of :attr:`run` it takes no look at the folder of a local model.

        Raises:
            StoreError: ``run.json`` has none.
        """
        stored = self.storage.read_json(RUN).get("run_id")
        if not isinstance(stored, str):
            raise StoreError(f"{self.storage.address(RUN)} has no run id; see what else is wrong with: pivot verify")
        return stored

    def run_record(self, run_id: str | None = None) -> dict[str, Any]:
        """Return the content of ``run.json``: the resolved config, the versions that run now, and the format.

        ``run_id`` is that of stored rows, where the policy is not asked for it.
        """
        config = self.config.model_dump(mode="json")
        return {"run_id": run_id or self.run.run_id, "config": config, "versions": versions(), "format": FORMAT}

    def write_run(self, name: str = RUN) -> FileRecord:
        """Write ``run.json``, or the file ``name`` that replaces it later."""
        return self.storage.write_json(name, self.run_record())

    # Paths

    @property
    def staged_folder(self) -> str:
        """Relative folder in which a dataset is made that will take the place of the one in use."""
        return f".{DATASET_FOLDER}-v{self.config.label_version}"

    def table_file(self, schema: TableSchema, shard: Shard) -> str:
        """Relative path of a shard of a rollout table or of the current labels."""
        return f"{self.table_folder(schema)}/{shard.file}"

    def table_folder(self, schema: TableSchema) -> str:
        """Relative folder of a table, of labels that of the current version."""
        return f"labels/v{self.config.label_version}" if schema is LABELS else schema.name

    def label_prompts_file(self, shard: Shard) -> str:
        """Relative path of a shard's Analyzer and teacher prompts, a part of the ``prompts`` table."""
        return f"{PROMPTS.name}/{shard.stem}-labels-v{self.config.label_version}.parquet"

    def label_calls_file(self, shard: Shard) -> str | None:
        """Relative path of the teacher's requests for a shard's current labels, a part of the ``calls`` table.

        None if the teacher is not a model, because then no requests exist.
        """
        name = self.config.teacher.name  # no other plugin is imported for it: readers of tables need none of a run
        if name in plugins.names("writers") and not part_type("teacher", name).served:
            return None
        return f"{CALLS.name}/{shard.stem}-labels-v{self.config.label_version}.parquet"

    def rollout_files(self, shard: Shard) -> dict[str, TableSchema]:
        """Relative paths of all files of the rollout stage of a shard, with their schemas."""
        files = {self.table_file(schema, shard): schema for schema in STORE_TABLES}
        if self.is_imported:
            from .imports import IMPORTS  # noqa: PLC0415 - few stores are imported

            files[self.table_file(IMPORTS, shard)] = IMPORTS
        return files

    @cached_property
    def is_imported(self) -> bool:
        """Whether the episodes were imported."""
        policy = part_type("student", self.config.policy.name)
        return issubclass(policy, Policy) and not policy.plays

    def label_files(self, shard: Shard) -> list[str]:
        """Relative paths of all files that hold the current labels of a shard and what belongs to them."""
        calls = self.label_calls_file(shard)
        files = [self.table_file(LABELS, shard), self.label_prompts_file(shard)]
        return files if calls is None else [*files, calls]

    def receipt_file(self, stage: str, shard: Shard) -> str:
        """Relative path of the receipt that a shard's stage leaves when it is done."""
        return f"{RECEIPTS}/{stage}/{shard.stem}.json"

    # Reading

    def receipt(self, stage: str, shard: Shard) -> Receipt | None:
        """The receipt of a shard's stage, or None."""
        return Receipt.read(self.storage, self.receipt_file(stage, shard))

    def read(self, schema: TableSchema, shard: Shard, columns: list[str] | None = None) -> pa.Table:
        """Read one shard of a table.

        Raises:
            StoreError: the file is missing, torn, or has other columns or cells.
        """
        return self.read_file(self.table_file(schema, shard), schema, columns, env=shard.env)

    @cached_property
    def audit(self) -> dict[str, Any]:
        """The record of how the source of an import was read, and what its rows add up to (:mod:`.imports`)."""
        return self.storage.read_json(AUDIT)

    def evidence(self, shard: Shard) -> dict[str, tuple[str, ...]] | None:
        """Return what confirms each imported episode of a shard, perhaps nothing; None in a store of PIVOT's rollouts.

        Raises:
            StoreError: the file is missing, torn, or has other columns or cells.
        """
        if not self.is_imported:
            return None
        from .imports import IMPORTS  # noqa: PLC0415 - few stores are imported

        rows = self.read(IMPORTS, shard, ["episode_id", "evidence"]).to_pylist()
        return {row["episode_id"]: tuple(row["evidence"] or ()) for row in rows if row["episode_id"] is not None}

    def read_file(
        self, name: str, schema: TableSchema, columns: list[str] | None = None, *, env: str | None = None
    ) -> pa.Table:
        """Read one file of a table; labels and what belongs to them have none in a shard without such rows.

        Raises:
            StoreError: the file is missing, torn, or has other columns or cells.
        """
        may_lack = _LABEL_FILE.fullmatch(name) is not None and name not in self.listed
        if may_lack and self.storage.stat(name) is None:
            empty = pa.Table.from_batches([], schema.arrow)
            return empty if columns is None else empty.select(columns)
        table = read_table(self.storage, name, schema, columns)
        check_rows(self.storage.address(name), schema, table, self.root, env)
        return table

    @cached_property
    def listed(self) -> frozenset[str]:
        """The files that the manifest lists; none while a build goes on."""
        return frozenset(self.manifest()) if self.storage.stat(MANIFEST) is not None else frozenset()

    def files(self, schema: TableSchema, shards: Sequence[Shard] | None = None) -> list[str]:
        """Relative paths of the files of a table, in order, by default of all shards; of labels the current version's.

        A shard without labels has no file of them, so those are named that are there, or that the manifest lists.
        """
        shards = self.shards if shards is None else shards
        files = [self.table_file(schema, shard) for shard in shards]
        if schema is PROMPTS:
            files += [self.label_prompts_file(shard) for shard in shards]
        if schema is CALLS:
            files += [name for shard in shards if (name := self.label_calls_file(shard)) is not None]
        if schema in (LABELS, PROMPTS, CALLS):
            present = self.listed.union(self.storage.listing(self.table_folder(schema)))
            return [name for name in files if name in present or not _LABEL_FILE.fullmatch(name)]
        return files

    def check_files(self, schemas: Iterable[TableSchema] = (*STORE_TABLES, LABELS)) -> None:
        """Check that every file of some tables is whole, from the footers alone (under a millisecond a file).

        Raises:
            StoreError: a file is missing, torn, or has other columns.
        """
        if self.storage.remote:  # a request a file, and no object can be torn
            self.check_presence(schemas)
            return
        for schema in schemas:
            for name in self.files(schema):
                check_file(self.storage, name, schema)

    def check_presence(self, schemas: Iterable[TableSchema]) -> None:
        """Check that no file of some tables is missing or empty, from listings alone (microseconds a file).

        Readers that take files by a pattern, or skip empty ones, would silently count the others.

        Raises:
            StoreError: a file is missing or empty.
        """
        for schema in schemas:
            present = self.storage.listing(self.table_folder(schema))
            for name in self.files(schema):
                if name not in present or not present[name].bytes:
                    check_file(self.storage, name, schema)  # says which

    def lazy(self) -> StoreFrames:
        """Lazy polars frames over the tables; only shards of the plan are named, so stray files are never read."""
        self.check_presence((*STORE_TABLES, LABELS))
        return StoreFrames(**{schema.name: self.scan(schema) for schema in (*STORE_TABLES, LABELS)})

    def scan(self, schema: TableSchema, shards: Sequence[Shard] | None = None) -> "pl.LazyFrame":
        """Return a lazy polars frame over a table, or some shards of it."""
        import polars as pl  # noqa: PLC0415 - machines that only train do without

        files = [self.storage.address(name) for name in self.files(schema, shards)]
        empty = pl.DataFrame(schema.arrow.empty_table())
        if not files:
            return empty.lazy()
        return pl.scan_parquet(files, glob=False, schema=empty.schema, extra_columns="ignore")

    # The manifest

    def manifest(self) -> dict[str, FileRecord]:
        """Read the manifest.

        Raises:
            StoreError: it is missing or malformed.
        """
        return read_manifest(self.storage)

    def write_manifest(self, files: dict[str, FileRecord], name: str = MANIFEST) -> None:
        """Write the manifest, which completes the store, or the file ``name`` that replaces it later."""
        entries = {path: asdict(files[path]) for path in sorted(files)}
        self.storage.write_json(name, {"files": entries})


def stored_config(root: Address, *, complete: bool = True, checked: bool = False) -> RunConfig:
    """Read the config of a store.

    Raises:
        StoreError, ConfigError, PluginError: as :meth:`Store.open`.
    """
    storage = open_storage(root)
    if not checked:
        storage.check_contents()
    run_file = storage.address(RUN)
    if storage.stat(RUN) is None:
        raise no_store(storage, root)
    if complete:
        refuse_unfinished(storage)
    raw = storage.read_json(RUN)
    if not isinstance(raw, dict) or "config" not in raw:
        raise StoreError(f"{run_file} has no field 'config'; restore it from a copy or build the store again")
    if (number := raw.get("format")) != FORMAT:  # its rows may mean something else
        raise StoreError(
            f"{run_file}: found format {number!r}, expected {FORMAT}; read the store with the version of "
            "PIVOT that wrote it, or build it again with --refresh"
        )
    try:
        config = make_config(raw["config"], STORED)
    except (ConfigError, PluginError) as error:
        raise type(error)(f"{run_file}: {error}") from error
    admission.note_store(config.code, run_file)
    if complete and not storage.remote:  # there it would be a request; verify compares the files
        _refuse_other_labels(root, run_file, config.label_version)
    return config


def _refuse_other_labels(root: Address, run_file: str, version: int) -> None:
    """Refuse a store that has labels, and none of its version: every failed episode has one in each version.

    Raises:
        StoreError: it has labels of other versions alone.
    """
    names = open_storage(root / LABELS.name).entries()
    versions = sorted(int(name[1:]) for name in names if re.fullmatch(r"v[0-9]{1,9}", name))
    if versions and version not in versions:
        raise StoreError(
            f"{run_file}: the label version is {version}, but the labels in {root} are of version "
            f"{', '.join(map(str, versions))}; restore {RUN} from a copy"
        )


def open_once(root: Address, config: RunConfig) -> Store:
    """Return the store of this process for an address and a config, so that a worker resolves a config once."""
    lease = root.lease if isinstance(root, Url) else ""
    return _opened((home_of(root), lease), root, config)


@lru_cache(maxsize=8)
def _opened(key: tuple[str, str], root: Address, config: RunConfig) -> Store:
    """Open a store; ``key`` is what equal addresses may differ in: the working folder, and the lease of a writer."""
    del key
    return Store(root, config)


def home_of(root: Address) -> str:
    """Return the name under which a store pays for the answers of models."""
    return str(root.absolute() if isinstance(root, Path) else root)


def refuse_unfinished_relabel(root: Address) -> None:
    """Refuse a store with an interrupted relabel, for readers that compare its files.

    Raises:
        StoreError: a relabel was interrupted; the message names the command that finishes it.
    """
    refuse_interrupted(open_storage(root), f"pivot relabel {root}")


def finish_relabel(storage: Storage) -> bool:
    """Finish a relabel that was interrupted in its last step; return whether there was one.

    Only a writer that holds the lock calls it.

    Raises:
        StoreError: the journal of the step is none that a relabel writes, or the step cannot be finished.
    """
    return roll_forward(storage, _foreign_name)


def _is_older(name: str, current: int) -> bool:
    old = _OLD_LABELS.fullmatch(name)
    return old is not None and int(old[1] or old[2]) < current


def _foreign_name(step: Step) -> str | None:
    """Describe a change that no relabel makes; None without one."""
    staged = _STAGED.fullmatch(step.source)
    if staged is None or step.target != DATASET_FOLDER:
        return f"it moves {step.source!r} to {step.target!r}"
    for name in step.objects:
        if name not in (RUN, DATABASE, MANIFEST):
            return f"it replaces {name!r}"
    current = int(staged[1])
    return next((f"it removes {name!r}" for name in step.obsolete if not _is_older(name, current)), None)


def shard_frames(store: Store, shard: Shard) -> dict[str, bytes]:
    """Return the encoded pictures of a shard by frame id."""
    table = store.read(FRAMES, shard, ["frame_id", "image"])
    return dict(zip(table["frame_id"].to_pylist(), table["image"].to_pylist(), strict=True))


def stored_failures(store: Store, shard: Shard) -> list[FailedEpisode]:
    """Return the failed, complete episodes of a shard, reading only the columns that they are made of.

    Raises:
        StoreError: a table is missing, torn, or has other columns.
    """
    episodes, steps = store.read(EPISODES, shard, FAILURE_COLUMNS), store.read(STEPS, shard, FAILURE_STEP_COLUMNS)
    return failed_episodes(episodes, steps, store.evidence(shard))


def data_files(store: Store) -> Iterable[str]:
    """Relative paths of all files that belong to a store's tables and export, as they are on disk."""
    folders = [*(schema.name for schema in STORE_TABLES), "imports", "labels", DATASET_FOLDER]
    for folder in folders:
        yield from store.storage.listing(folder)
