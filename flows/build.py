"""Build a dataset: resolve the config, open the workers, and run the pipeline here or as a Prefect flow."""

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from ..core.admission import allowing
from ..core.plugins import STORED
from ..core.progress import Reporter
from ..core.storage import Address, parse_address
from ..datasets.store.config import RunConfig, env_config, environment, make_config
from ..environments.grid import GridEnv
from .pipeline import BuildResult, build_store, refuse_another_config
from .running import Running, pool_of, public


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
        **running: workers, reporter, engine, address and allow: :class:`~pivot.flows.running.Running`.

    Returns:
        Counts by environment, and whether there was anything to do.

    Raises:
        PivotError: its subclasses name what is wrong with config, levels, plugins or disk.
    """
    root, reporter = parse_address(out), running.get("reporter") or Reporter()
    config = config if isinstance(config, RunConfig) else make_config(config)
    refuse_another_config(root, config, refresh=refresh)  # before workers are started
    for line in levels_read(config):
        reporter.note(line)
    with allowing(config.code):  # the caller names it
        if not prefect:
            with pool_of(running, list(config.environments), root) as pool:
                return build_store(root, config, pool, reporter, refresh=refresh)
        from .engines.server import configured_server, quiet_prefect, wait_for_server  # noqa: PLC0415 - not needed above

        quiet_prefect()
        if (url := configured_server()) is not None:  # report a server that does not answer before Prefect is imported
            wait_for_server(url)
        from .deployments import recorded_build  # noqa: PLC0415 - Prefect takes seconds to import

        return recorded_build(config, root, running, reporter, refresh=refresh)


def levels_read(config: RunConfig) -> Iterator[str]:
    """Yield lines about the files with levels of one's own: their number, and what in the files was refused.

    Raises:
        ConfigError: the files cannot be read.
    """
    for name, run in config.environments.items():
        kind = environment(name)
        if issubclass(kind, GridEnv) and (collection := kind.collection(env_config(name, run.settings, STORED))):
            yield from (f"{name}: {line}" for line in collection.report())
