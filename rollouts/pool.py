"""The environments of a run, one pool per type and settings: created when needed, reused unless they broke.

An environment that blocks (``PivotEnv.blocks``) is called in a thread of the pool, so that the event loop, and with it
every other episode, continues. An environment has one caller at a time, possibly in different threads.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..environments.base import EnvConfig, PivotEnv

Result = TypeVar("Result")

MOST_THREADS = 64
"""Most concurrent calls of blocking environments per pool. Their threads only wait, which is cheap."""

_log = logging.getLogger(__name__)


class EnvPool:
    """Pool of environments of one type and settings, at most as many as the settings allow."""

    def __init__(self, env_type: type[PivotEnv], config: EnvConfig) -> None:
        """Start empty."""
        self.env_type, self.config = env_type, config
        self.lent = 0
        """Number of environments reserved or in use; the caller that starts an episode increments it."""
        self._free: list[PivotEnv] = []
        self._threads = ThreadPoolExecutor(min(MOST_THREADS, config.most_instances or MOST_THREADS), "pivot-env")

    @property
    def blocks(self) -> bool:
        """Whether an environment of these settings blocks; it is kept."""
        if not self._free:
            self._free.append(self._new())
        return self._free[-1].blocks

    @property
    def has_room(self) -> bool:
        """Whether another episode may begin."""
        return self.config.most_instances is None or self.lent < self.config.most_instances

    def take(self) -> PivotEnv:
        """Return a free environment, or a new one."""
        return self._free.pop() if self._free else self._new()

    def _new(self) -> PivotEnv:
        env = self.env_type(self.config)
        env.draw_frames = False
        return env

    async def give_back(self, env: PivotEnv, *, sound: bool) -> None:
        """Take an environment back; close it if it broke."""
        if not sound:
            await self._end(env)
        else:
            self._free.append(env)
        self.lent -= 1

    async def call(self, env: PivotEnv, function: Callable[..., Result], /, *arguments: Any) -> Result:
        """Call a function that uses ``env``, in a thread if ``env`` blocks; wait until a cancelled call has ended."""
        if not env.blocks:
            return function(*arguments)
        running = self._threads.submit(function, *arguments)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancel():
                await asyncio.gather(asyncio.wrap_future(running), return_exceptions=True)
            raise

    async def close(self) -> None:
        """Close the free environments."""
        while self._free:
            await self._end(self._free.pop())
        self._threads.shutdown()

    async def _end(self, env: PivotEnv) -> None:
        try:
            await self.call(env, env.close)
        except Exception as error:  # noqa: BLE001 - the records are complete; an environment may fail while it closes
            _log.warning("%s: closing an environment failed: %s", self.env_type.profile.name, error)
