"""How many requests a server gets at a time, and when it counts as gone.

The limit follows the server: it doubles with every round of answers until the server complains, and is four times as
many where no answer takes longer than the first; then it grows by one a round and shrinks by a tenth with every
complaint (429 and 503; a third for time-outs and dropped connections), at most once a round. A server that only queues
what it cannot take at once never complains, and then the cap is the limit.

The breaker knows when the last answer came. A single request may fail for reasons of its own; when nobody has got an
answer for longer than the patience of the run, the server is gone, and when many are refused alike with none answered
in between, as when an account is empty, asking on is no use.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush

from ..errors import ConfigError, ServerGoneError

START = 64
"""Requests in flight at first: what one GPU with a model of 2 to 8 B parameters takes easily."""

LEAP = 3
"""How much an answer adds to the limit when it took no longer than others: nothing waits in line at the server yet."""
UNHURRIED = 1.25
"""Times the seconds of the fastest answer that count as no longer."""

CROWDED, BROKEN = 0.9, 0.67
"""What is left of the limit after a server said that it has too much to do, and after it gave no answer at all."""

FEWEST_REFUSALS = 24
"""So many requests refused alike and none answered in between: it is the set-up or the account, not the requests."""

FEWEST_FAILURES = 5
"""A breaker never opens on fewer failures in a row."""

_SPARE = 0.1


class AdaptiveLimit:
    """A semaphore whose size follows the server."""

    def __init__(self, cap: int, start: int = START) -> None:
        """Begin with ``start`` slots, never have more than ``cap``."""
        self._cap = cap
        self._limit = float(min(start, cap))
        self._in_flight = 0
        self._round = 0
        """Counts shrinkings; complaints about requests of an earlier round are about a limit that is gone."""
        self._fastest = math.inf
        self._settled = False
        """Whether the server has complained yet."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap: turn, number of the request, and what is done when its slot comes."""
        self._asked = 0

    @property
    def limit(self) -> int:
        """Slots at the moment."""
        return int(self._limit)

    async def acquire(self, turn: int = 0) -> int:
        """Wait for a slot; return the round for :meth:`answered` and :meth:`complained`.

        Earlier turns go first, equal ones as they come: the episodes with the most before them would otherwise be left
        over at the end, too few to fill the slots.
        """
        if self._in_flight >= self.limit or self._waiting:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._asked += 1
            heappush(self._waiting, (turn, self._asked, ready))
            try:
                await ready
            except asyncio.CancelledError:
                if ready.done() and not ready.cancelled():
                    self._in_flight -= 1  # the slot came together with the cancellation
                    self._wake()
                raise
        else:
            self._in_flight += 1
        return self._round

    def release(self) -> None:
        """Give the slot back."""
        self._in_flight -= 1
        self._wake()

    def answered(self, seconds: float | None = None) -> None:
        """Note an answer: the limit grows if it is being used, faster where answers take no longer than the first."""
        unhurried = False
        if seconds is not None:
            self._fastest = min(self._fastest, seconds)
            unhurried = seconds <= UNHURRIED * self._fastest
        if self._in_flight >= self.limit and self._limit < self._cap:
            growth = 1 / self._limit if self._settled else LEAP if unhurried else 1
            self._limit = min(self._cap, self._limit + growth)
            self._wake()

    def complained(self, asked_in: int, left: float) -> None:
        """Note that a request of round ``asked_in`` was too much; ``left`` of the limit remains."""
        if asked_in == self._round:
            self._settled = True
            self._round += 1
            self._limit = max(1.0, self._limit * left)

    def _wake(self) -> None:
        while self._waiting and self._in_flight < self.limit:
            _, _, ready = heappop(self._waiting)
            if not ready.done():
                self._in_flight += 1
                ready.set_result(None)


class Breaker:
    """Tells a bad request from a server that is gone."""

    def __init__(self, where: str, patience: float, clock: Callable[[], float]) -> None:
        """Allow ``patience`` seconds without any answer; ``where`` names the server in the message."""
        self._where = where
        self._patience = patience
        self._clock = clock
        self._failures = 0
        self._silent_since: float | None = None
        self._refusals: Counter[str] = Counter()
        self._refused_with: int | None = None
        self.answers = 0
        """Answers so far; a request that fails while this grows has a problem of its own."""

    def answered(self) -> None:
        """Note an answer of any kind that shows that the server works."""
        self.answers += 1
        self._failures = 0
        self._silent_since = None
        self._refusals.clear()

    def refused(self, status: int, reason: str) -> None:
        """Note a request that was refused for good with a status.

        Raises:
            ConfigError, ServerGoneError: so many were refused alike, and none answered in between, that it is not the
                requests; a configuration error where none was ever answered.
        """
        if status != self._refused_with:
            self._refused_with = status
            self._refusals.clear()
        self._refusals[reason] += 1
        count = self._refusals.total()
        if count < FEWEST_REFUSALS:
            return
        most = self._refusals.most_common(1)[0][0]
        if not self.answers:
            raise ConfigError(f"{self._where} refused the first {count} requests and answered none ({most})")
        raise ServerGoneError(
            f"{self._where} refused {count} requests one after the other (most often with {most}); finished episodes "
            "are kept: see to the account or the server and run the same command again to go on"
        )

    def failed(self, reason: str, allow: float = 0.0) -> None:
        """Note a failed try; the server asked to be left alone for ``allow`` seconds.

        Raises:
            ServerGoneError: nobody has got an answer for too long.
        """
        now = self._clock()
        self._failures += 1
        if self._silent_since is None:
            self._silent_since = now
        if allow:
            # Patience never ends before the time that the server asked for, and a little to spare.
            self._silent_since = max(self._silent_since, now + allow - (1 - _SPARE) * self._patience)
        if self._failures >= FEWEST_FAILURES and now - self._silent_since >= self._patience:
            raise ServerGoneError(
                f"no answer from {self._where} for {self._patience:.0f} s and {self._failures} tries (last: {reason}); "
                "finished episodes are kept: see to the server and run the same command again to go on"
            )
