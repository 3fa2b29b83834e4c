"""The environments of a run, one pool for each type and settings: made when needed, used again while they are sound.

An environment that blocks (``PivotEnv.blocks``) is called in a thread of the pool, so that the event loop, and with it
every other episode, goes on meanwhile. Whichever thread it is: an environment is used by one caller at a time.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..environments.base import EnvConfig, PivotEnv

Result = TypeVar("Result")

MOST_THREADS = 64
"""Blocking environments of one pool that are called at a time. They wait for something else, which is cheap."""

_log = logging.getLogger(__name__)


class EnvPool:
    """Environments of one type and settings, at most as many as the settings allow."""

    def __init__(self, env_type: type[PivotEnv], config: EnvConfig) -> None:
        """Start empty."""
        self.env_type, self.config = env_type, config
        self.lent = 0
        """Environments that are promised or in use; whoever starts an episode counts it here."""
        self._free: list[PivotEnv] = []
        self._threads = ThreadPoolExecutor(min(MOST_THREADS, config.most_instances or MOST_THREADS), "pivot-env")

    @property
    def has_room(self) -> bool:
        """Whether another episode may begin."""
        return self.config.most_instances is None or self.lent < self.config.most_instances

    def take(self) -> PivotEnv:
        """Return a sound environment that nobody uses."""
        if self._free:
            return self._free.pop()
        env = self.env_type(self.config)
        env.draw_frames = False
        return env

    async def give_back(self, env: PivotEnv, *, sound: bool) -> None:
        """Take an environment back; one that broke is closed."""
        if not sound:
            await self._end(env)
        else:
            self._free.append(env)
        self.lent -= 1

    async def call(self, env: PivotEnv, function: Callable[..., Result], /, *arguments: Any) -> Result:
        """Call a function that uses ``env``, in a thread if ``env`` blocks; when cancelled, wait until it has ended."""
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
        """Close the environments that nobody uses."""
        while self._free:
            await self._end(self._free.pop())
        self._threads.shutdown()

    async def _end(self, env: PivotEnv) -> None:
        try:
            await self.call(env, env.close)
        except Exception as error:  # noqa: BLE001 - the records are made; an environment may break at its end, too
            _log.warning("%s: closing an environment failed: %s", self.env_type.profile.name, error)
