"""The pre-flight check: a small request to each model behind a server before a run begins.

A mistake in address, key or model then costs seconds, not a night.
"""

import asyncio
from collections.abc import Mapping

from ..core.errors import ConfigError, PivotError
from ..core.messages import Role
from ..datasets.store.run import Run
from ..datasets.store.stages import PENDING_EPISODES, ROLLOUT, LabelStage
from ..datasets.store.store import Store
from ..labeling.base import UNANSWERED
from ..models.address import api_key
from ..models.service import Service

GRACE_SECONDS = 1.0
"""Seconds that the other check may still take after one check has failed."""

_FLAGS_OF_A_TEACHER = {
    "--base-url": "--writer-service base_url=URL",
    "--model": "--writer-model",
    "--key-variable": "--writer-service key_variable=NAME",
}
_ROLES: Mapping[str, Role] = {"policy": "student", "teacher": "teacher"}


def check_keys(run: Run) -> None:
    """Check that the environment variables for the servers' keys are set; nothing is sent.

    Raises:
        ConfigError: one is not set, or holds something that is not a key.
    """
    for name, role in _ROLES.items():
        for service in run.services(role):
            if isinstance(service, Service):
                try:
                    api_key(service.key_variable)
                except ConfigError as error:
                    raise ConfigError(_message(name, str(error))) from error


def preflight_models(run: Run, *, policy: bool = True, writer: bool = True) -> None:
    """Send one test request to the policy and one to the guidance writer.

    Raises:
        ConfigError, PluginError: address, key, model or server are wrong.
        ServerGoneError: no server answers.
        CacheError: the call cache cannot be used.
    """
    asyncio.run(_preflight(run, policy, writer))


async def _preflight(run: Run, policy: bool, writer: bool) -> None:
    # Both at the same time: the first answer of a server may take long.
    checks: dict[str, asyncio.Task[None]] = {}
    if policy:
        checks["policy"] = asyncio.create_task(run.policy().preflight())
    if writer:
        checks["teacher"] = asyncio.create_task(run.writer().preflight())
    try:
        for role, check in checks.items():
            try:
                await check
            except PivotError as error:
                raise type(error)(_message(role, str(error))) from error
    finally:
        await asyncio.wait(checks.values(), timeout=GRACE_SECONDS)  # a check that is nearly over closes its connections
        for check in checks.values():
            check.cancel()
        await asyncio.gather(*checks.values(), return_exceptions=True)


def _message(role: str, message: str) -> str:
    """Return a message that names the role; its hints name the flags of that role."""
    for flag, own in _FLAGS_OF_A_TEACHER.items() if role == "teacher" else ():
        message = message.replace(flag, own)
    return f"{role}: {message}"


def preflight_build(store: Store, *, refresh: bool = False) -> None:
    """Check the models that a build of ``store`` needs; a store with all their answers needs no server.

    The errors are those of :func:`preflight_models`.
    """
    run = store.run
    policy = run.served and (refresh or not _has_rollouts(store))
    writer = run.writer_is_served and (refresh or not _has_rollouts(store) or not _has_labels(store))
    if policy or writer:
        preflight_models(run, policy=policy, writer=writer)


def _has_rollouts(store: Store) -> bool:
    """Return whether every episode is stored; the planning checks later whether the levels are the right ones."""
    for shard in store.config.shards():
        receipt = store.receipt(ROLLOUT, shard)
        if receipt is None or receipt.facts[PENDING_EPISODES]:
            return False
        if receipt.facts["episodes"] != (shard.stop - shard.first) * store.config.rollouts:
            return False
    return True


def _has_labels(store: Store) -> bool:
    """Return whether every label is stored and answered; its rollouts are."""
    for shard in store.config.shards():
        stage = LabelStage(store, shard)
        receipt = store.receipt(stage.name, shard)
        if receipt is None or receipt.facts[UNANSWERED]:
            return False
        if not receipt.holds(store.storage, stage.inputs()):
            return False
    return True
