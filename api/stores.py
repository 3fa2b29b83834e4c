"""Functions that write stores: build, relabel, merge."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from ..core.admission import allowing
from ..core.errors import ConfigError
from ..core.plugins import read_settings
from ..core.storage import Address, open_storage
from ..datasets.store.config import RunConfig, env_config, make_config
from ..datasets.store.run import Run
from ..datasets.store.store import RUN, Store, stored_config
from ..flows.engines.local import execute_with
from ..flows.engines.server import configured_server, quiet_prefect, wait_for_server
from ..flows.merge import merge_stores
from ..flows.pipeline import BuildResult, build_store
from ..flows.relabel import LabelChanges, relabel_store
from ..interop.run import REQUIRED, ImportResult, import_store
from ..rollouts.policies.imported import Compared
from .running import Running, address_of, pool_of, public, reporter_of, workers_of


@public
def build(
    config: RunConfig | Mapping[str, Any],
    out: str | Address,
    *,
    refresh: bool = False,
    prefect: bool = False,
    **running: Unpack[Running],
) -> BuildResult:
    """Roll out, label and export a dataset; call it again to resume, or to grow the store.

    Args:
        config: a :class:`~pivot.datasets.store.config.RunConfig`, or plain data for one, such as
            ``{"environments": {"sokoban": {"tasks": 16}}}``. Shards get a size that fits the store unless it is set.
            Modules that it names, such as ``gym.package``, are imported.
        out: folder of the store, or an address such as ``s3://bucket/folder``; new, empty, or begun with this config.
        refresh: remove the contents of the folder and build again from the beginning.
        prefect: run as a Prefect flow that is recorded, on the configured server or a temporary one.
        **running: workers, reporter, engine, address, follow_links and allow, see :class:`~pivot.api.running.Running`.

    Returns:
        Counts by environment, and whether there was anything to do.

    Raises:
        PivotError: its subclasses name what is wrong with config, levels, plugins or disk.
    """
    root, resolved = _resolve(config, out, running)
    with allowing(resolved.code):  # the caller names it
        if prefect:
            return _recorded_build(resolved, root, running, refresh=refresh)
        with pool_of(running, list(resolved.environments), root) as pool:
            return build_store(root, resolved, execute_with(pool), reporter_of(running), refresh=refresh)


def _recorded_build(config: RunConfig, root: Address, running: Running, *, refresh: bool) -> BuildResult:
    """Build as a flow run; a server that does not answer is reported before Prefect is imported."""
    quiet_prefect()
    if (url := configured_server()) is not None:
        wait_for_server(url)
    from ..flows.deployments import recorded_build  # noqa: PLC0415 - Prefect takes seconds to import

    return recorded_build(config, root, workers_of(running), reporter_of(running), refresh=refresh)


@public
def import_rollouts(
    source: str | Path,
    out: str | Address,
    *,
    format: str = "jsonl",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    require: Sequence[str] = REQUIRED,
    options: Mapping[str, Any] | None = None,
    model: str = "",
    config: Mapping[str, Any] | None = None,
    **running: Unpack[Running],
) -> ImportResult:
    """Read rollouts of another program into a store; later stages treat it like a build.

    Every episode is replayed. One whose replay differs in what ``require`` names is left out and reported, as is one
    that cannot be read. A failure of navigation without a state gets a lower bound in the table ``imports``.

    Args:
        source: file or folder.
        out: folder or address of the store; new, empty, or begun by the same call.
        format: registered format of the source.
        settings: settings of environments that replace the recorded ones, such as ``{"sokoban": {"horizon": 20}}``.
        require: any of ``end``, ``states``, ``rewards`` and ``frames``; what was not recorded is not compared.
        options: settings of the format, such as ``{"env": "sokoban", "separator": ","}`` for chats.
        model: the model that acted.
        config: other fields of the run config that decide labels and dataset, such as ``teacher`` or ``split``.
        **running: workers, reporter, engine, address, follow_links and allow, see :class:`~pivot.api.running.Running`.

    Returns:
        Counts of the store, the episodes that were left out with their reasons, and counts of matching replays by
        aspect.

    Raises:
        PivotError: the source, a setting or the folder cannot be used; the message says what to do.
    """
    root, names = address_of(out, running), {each.value: each for each in Compared}
    if unknown := [each for each in require if each not in names]:
        raise ConfigError(f"require: found {unknown[0]!r}, expected some of {', '.join(names)}")
    code = [name for env, each in (settings or {}).items() for name in env_config(env, each).code]
    with allowing(code), pool_of(running, (), root) as pool:
        return import_store(
            Path(source),
            format,
            root,
            execute_with(pool),
            reporter_of(running),
            settings=settings,
            require=[names[each] for each in require],
            options=options,
            model=model,
            config=config,
        )


def _resolve(config: RunConfig | Mapping[str, Any], out: str | Address, running: Running) -> tuple[Address, RunConfig]:
    """Return the address of a store, and the config of its build with a shard size."""
    root = address_of(out, running)
    return root, with_shards(config if isinstance(config, RunConfig) else make_config(config), root)


def with_shards(config: RunConfig, root: Address) -> RunConfig:
    """Return the config with the shard size of the store that is there, or with one that fits a new store.

    A size that the config sets is kept.
    """
    if "tasks_per_shard" in config.model_fields_set:
        return config
    if open_storage(root).stat(RUN) is None:
        return config.with_fitting_shards()
    begun = Store.open(root, complete=False).config
    return config.model_copy(update={"tasks_per_shard": begun.tasks_per_shard})


@public
def relabel(
    root: str | Address,
    changes: LabelChanges | Mapping[str, Any],
    *,
    keep_old: bool = False,
    refresh: bool = False,
    only_rejected: bool = False,
    **running: Unpack[Running],
) -> BuildResult:
    """Label a finished store again, without new rollouts, as its next label version.

    Args:
        root: the store.
        changes: fields of the run config that differ from now on, such as ``{"split": "episode"}``: ``teacher``,
            ``split``, ``target_vocabulary``, ``include_infeasible``, ``solvers``, ``log``.
        keep_old: keep the replaced labels.
        refresh: ask the teacher for all guidance again.
        only_rejected: ask the teacher again where its guidance had a label rejected, and keep the rest.
        **running: workers, reporter, engine, address, follow_links and allow, see :class:`~pivot.api.running.Running`.

    Returns:
        Counts of the store.

    Raises:
        StoreError: the store is missing or unfinished, or another run writes it.
        ConfigError: a change cannot be used.
    """
    store = address_of(root, running)
    if not isinstance(changes, LabelChanges):
        changes = read_settings(LabelChanges, changes, "label setting ")
    fields = changes.model_dump(mode="json", exclude_none=True)
    config = stored_config(store, complete=False)
    changed = make_config(config.model_dump(mode="json") | fields)  # a mistake is reported before workers start
    if changed.teacher != config.teacher:
        Run(changed).writer().check()
    with pool_of(running, list(config.environments), store) as pool:
        return relabel_store(
            store,
            fields,
            execute_with(pool),
            reporter_of(running),
            keep_old=keep_old,
            refresh=refresh,
            only_rejected=only_rejected,
        )


@public
def merge(*roots: str | Address, out: str | Address, sources: bool = False, **running: Unpack[Running]) -> BuildResult:
    """Write finished stores of one run with different levels, such as nights, to one new store; rows are copied.

    Args:
        roots: the finished stores, which stay as they are; equal in everything but seed, tasks and environments.
        out: the new one; empty, or begun by the same call.
        sources: read the folders of models that ``run.json`` names, for their revisions.
        **running: workers, reporter, engine, address, follow_links and allow, see :class:`~pivot.api.running.Running`.

    Returns:
        Counts of the new store.

    Raises:
        StoreError, ConfigError: as :func:`~pivot.flows.merge.merge_stores`.
    """
    if not roots:
        raise ConfigError("merge: found no store, expected one or more finished stores")
    stores, target = [address_of(each, running) for each in roots], address_of(out, running)
    environments = [env for each in stores for env in stored_config(each).environments]
    with pool_of(running, list(dict.fromkeys(environments)), target) as pool:
        return merge_stores(stores, target, execute_with(pool), reporter_of(running), follow=sources)
