"""Probe a store on workers; :mod:`pivot.insight.probe.run` plays the retries."""

from collections.abc import Mapping
from typing import Any, Unpack

from ..core.plugins import read_settings
from ..core.progress import Reporter
from ..core.storage import Address, parse_address
from ..datasets.store.config import PartConfig
from ..insight.probe.records import ProbeSettings
from ..insight.probe.run import ProbeResult, checked_store, probe_store
from .running import Running, pool_of, public


@public
def probe(
    root: str | Address,
    settings: ProbeSettings | Mapping[str, Any] | None = None,
    *,
    policy: PartConfig | Mapping[str, Any] | None = None,
    **running: Unpack[Running],
) -> ProbeResult:
    """Replay the failures of a store from the pivot and from the steps next to it; rows go to ``DIR/probe``.

    Args:
        root: the finished store; its policy plays.
        settings: arms, resamples, discount, such as ``{"resamples": 8}``.
        policy: plays the retries of arm ``bound``, such as ``{"name": "openai", "options": {"model": "my-vlm"}}``; by
            default the policy of the store, which may get another ``service`` here.
        **running: workers, reporter, engine, address and allow: :class:`~pivot.flows.running.Running`.

    Returns:
        The number of retries, and how many of them this call played.

    Raises:
        ConfigError: an arm is unknown, or the policy cannot play these environments.
        StoreError: the store is missing or unfinished, or another run writes it.
        ServerGoneError: the model does not answer any more; finished retries are kept.
    """
    if not isinstance(settings, ProbeSettings):
        settings = read_settings(ProbeSettings, settings or {}, "setting ")
    store = parse_address(root)
    player = None if policy is None else PartConfig.model_validate(policy)
    environments = list(checked_store(store, settings, player).config.environments)
    with pool_of(running, environments, store) as pool:
        return probe_store(store, settings, running.get("reporter") or Reporter(), pool.stream, player)
