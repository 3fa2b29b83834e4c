"""Policy and writer are met before a run makes anything, where they will be asked: a wrong set-up costs seconds."""

import asyncio

from ..datasets.inputs import ROLLOUT, label_inputs, label_stage
from ..datasets.run import Run
from ..datasets.store import Store
from ..errors import PivotError
from ..labeling.base import UNANSWERED

GOODBYE_SECONDS = 1.0
"""How long another meeting may still take when one has failed."""

_FLAGS_OF_A_TEACHER = {"--base-url": "--teacher-base-url", "--model": "--teacher-model"}


def meet_models(run: Run, *, policy: bool = True, writer: bool = True) -> None:
    """Meet the policy and then the writer; the first that cannot be worked with is told.

    Raises:
        ConfigError, PluginError: address, key, model or server are wrong.
        ServerGoneError: nobody answers.
        CacheError: the call cache cannot be used.
    """
    asyncio.run(_meet(run, policy, writer))


async def _meet(run: Run, policy: bool, writer: bool) -> None:
    # Both at the same time, for the first answer of a server may take long.
    meetings: dict[str, asyncio.Task[None]] = {}
    if policy:
        meetings["policy"] = asyncio.create_task(run.policy().meet())
    if writer:
        meetings["teacher"] = asyncio.create_task(run.writer().meet())
    try:
        for role, meeting in meetings.items():
            try:
                await meeting
            except PivotError as error:
                raise type(error)(_told(role, str(error))) from error
    finally:
        await asyncio.wait(meetings.values(), timeout=GOODBYE_SECONDS)  # one that is nearly over closes its connections
        for meeting in meetings.values():
            meeting.cancel()
        await asyncio.gather(*meetings.values(), return_exceptions=True)


def _told(role: str, message: str) -> str:
    """Return a message that says whose server it is about; its hints name the options of a policy."""
    for flag, own in _FLAGS_OF_A_TEACHER.items() if role == "teacher" else ():
        message = message.replace(flag, own)
    return f"{role}: {message}"


def meet_for(store: Store, run: Run, *, refresh: bool = False) -> None:
    """Meet whom a build of ``store`` will ask; a store that holds all their answers needs no server.

    The errors are those of :func:`meet_models`.
    """
    policy = run.served and (refresh or not _has_rollouts(store))
    writer = run.writer_is_served and (refresh or not _has_rollouts(store) or not _has_labels(store, run))
    if policy or writer:
        meet_models(run, policy=policy, writer=writer)


def _has_rollouts(store: Store) -> bool:
    """Whether every episode is there; which levels they are of is known only after planning."""
    for shard in store.config.shards():
        receipt = store.receipt(ROLLOUT, shard)
        if receipt is None or receipt.facts["owed"]:
            return False
        if receipt.facts["episodes"] != (shard.stop - shard.first) * store.config.rollouts:
            return False
    return True


def _has_labels(store: Store, run: Run) -> bool:
    """Whether every label is there and answered; its rollouts are."""
    for shard in store.config.shards():
        receipt = store.receipt(label_stage(store.config), shard)
        if receipt is None or receipt.facts[UNANSWERED]:
            return False
        if not receipt.holds(store.storage, label_inputs(store, run, shard)):
            return False
    return True
