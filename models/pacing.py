"""Concurrency control for a server, and the rule for when the server counts as gone.

The limit on concurrent requests follows the server. At first it doubles with every round of answers, or quadruples
while answers take no longer than the first ones. A complaint shrinks it, at most once per round: by a tenth for 429 and
503, by a third for time-outs and dropped connections. Afterwards it returns at four times per round to the limit that
held last, so that an outage costs a few round trips. Beyond that limit it grows by one request in the first round, four
in the next, then 16, and so on, until the server complains again: a server that lifts its limit is soon full. A server
that only queues requests never complains; then the configured cap is the limit. Worker processes of one run each follow
the server; a semaphore that all of them take slots from keeps their sum below the cap.

The breaker knows when the last answer came. A single request may fail for its own reasons. When no request has been
answered for longer than the patience of the run, the server is gone. When many requests are refused in the same way and
none is answered in between, as with an empty account, further requests are useless.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from multiprocessing.synchronize import Semaphore

from ..core.errors import ConfigError, ServerGoneError

START = 64
"""Concurrent requests at first: one GPU with a model of 2 to 8 B parameters takes them easily."""

LEAP = 3
"""Growth of the limit per answer while the server is known to take more: four times per round."""
UNHURRIED = 1.25
"""Largest ratio of an answer's duration to the fastest one's at which it did not queue at the server."""

CROWDED, BROKEN = 0.9, 0.67
"""Share of the limit that is kept after a complaint about too many requests, and after a missing answer."""

RETURN = 0.95
"""After an outage, the limit grows four times per round up to this share of the last working limit."""

FEWEST_REFUSALS = 24
"""Consecutive identical refusals without an answer that point to the set-up or the account, not to the requests."""

FEWEST_FAILURES = 5
"""The breaker never opens after fewer consecutive failures."""

_SPARE = 0.1

POLL_SECONDS = 0.002
"""Pause between two checks of the shared semaphore; a process that has just released a slot pauses, too, so that no
process keeps all slots."""


_shared: Semaphore | None = None


def share_slots(slots: Semaphore) -> None:
    """From now on, take one of the shared slots for every request of this process."""
    global _shared  # noqa: PLW0603 - one semaphore per worker process
    _shared = slots


class AdaptiveLimit:
    """A semaphore whose size follows the server."""

    def __init__(self, cap: int, start: int = START) -> None:
        """Begin with ``start`` slots and never have more than ``cap``."""
        self._cap = cap
        self._limit = float(min(start, cap))
        self._in_flight = 0
        self._round = 0
        """Number of times the limit shrank; complaints about requests of an earlier round concern an older limit."""
        self._fastest = math.inf
        self._last_held = math.inf
        """Limit before the last shrinking or series of shrinkings; infinite before the first complaint."""
        self._step = self._next_step = 1
        """Growth of the limit in this round and in the next one, in requests, beyond the last working limit."""
        self._round_size = self._answers_left = 0
        """Number of answers in the current round of growth, and how many are still missing."""
        self._outage = False
        """Whether no answer has come since requests began to fail."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """Heap of turn, number of the request, and the future that its slot completes."""
        self._requests = 0
        self._shared = _shared
        self._poll_timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Current number of slots."""
        return int(self._limit)

    async def acquire(self, turn: int = 0) -> int:
        """Wait for a slot; return the round, for :meth:`complained`.

        Earlier turns go first, equal turns in the order of arrival. Otherwise the episodes with the most turns left
        would remain at the end, too few to fill the slots.
        """
        if self._waiting or not self._take():
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._requests += 1
            heappush(self._waiting, (turn, self._requests, ready))
            self._poll()
            try:
                await ready
            except asyncio.CancelledError:
                if ready.done() and not ready.cancelled():
                    self.release()  # the slot came together with the cancellation
                raise
        return self._round

    def release(self) -> None:
        """Return the slot."""
        self._in_flight -= 1
        if self._shared is None:
            self._wake()
        else:
            self._shared.release()
            self._poll()

    def _take(self) -> bool:
        if self._in_flight >= self.limit or (self._shared is not None and not self._shared.acquire(False)):
            return False
        self._in_flight += 1
        return True

    def _poll(self) -> None:
        """Check again shortly whether other processes have released a slot."""
        if self._shared is None or self._poll_timer or not self._waiting or self._in_flight >= self.limit:
            return

        def look() -> None:
            self._poll_timer = None
            self._wake()

        self._poll_timer = asyncio.get_running_loop().call_later(POLL_SECONDS, look)

    def answered(self, seconds: float | None = None) -> None:
        """Note an answer that took ``seconds``: the limit grows if all of its slots are in use."""
        self._outage = False
        unhurried = False
        if seconds is not None:
            self._fastest = min(self._fastest, seconds)
            unhurried = seconds <= UNHURRIED * self._fastest
        # A request that waits takes a slot of this process alone at once, and a shared one only at the next poll.
        is_full = self._in_flight >= self.limit if self._shared is None else bool(self._waiting)
        if is_full and self._limit < self._cap:
            self._limit = min(self._cap, self._limit + self._growth(unhurried))
            self._wake()

    def _growth(self, unhurried: bool) -> float:
        """Return the growth of the limit per answer; the rounds of the module docstring are counted in answers."""
        if math.isinf(self._last_held):
            return LEAP if unhurried else 1
        if (missing := RETURN * self._last_held - self._limit) > 0:
            return min(LEAP, missing)
        if self._answers_left == 0:
            self._step, self._next_step = self._next_step, min(4 * self._next_step, self._cap)
            self._round_size = self._answers_left = self.limit
        self._answers_left -= 1
        return self._step / self._round_size

    def complained(self, sent_in: int, remaining: float) -> None:
        """Record the server's refusal of a request of round ``sent_in``; ``remaining`` is the share to keep."""
        if sent_in != self._round:
            return
        self._round += 1
        self._next_step, self._answers_left = 1, 0
        if remaining > BROKEN:
            self._last_held = self._limit * remaining  # this number of requests is too large
        elif not self._outage:
            self._last_held = self._limit
            self._outage = True
        self._limit = max(1.0, self._limit * remaining)

    def _wake(self) -> None:
        while self._waiting:
            if self._waiting[0][2].done():  # cancelled
                heappop(self._waiting)
            elif self._take():
                heappop(self._waiting)[2].set_result(None)
            else:
                break
        self._poll()


class Breaker:
    """Distinguishes a bad request from a server that is gone."""

    def __init__(self, where: str, patience: float, clock: Callable[[], float]) -> None:
        """Allow ``patience`` seconds without any answer; ``where`` names the server in messages."""
        self._recovery = asyncio.Event()
        self._where = where
        self._patience = patience
        self._clock = clock
        self._failures = 0
        self._silent_since: float | None = None
        self._refusals: Counter[str] = Counter()
        self._refused_with: int | None = None
        self.answers = 0
        """Number of answers; if it grows while a request fails, that request itself is the problem."""

    def answered(self) -> None:
        """Record an answer of any kind, which shows that the server works."""
        self.answers += 1
        self._refusals.clear()
        self.works()

    def works(self) -> None:
        """Record that the server works, even if it broke off its answer."""
        if self._failures >= FEWEST_FAILURES:
            self._recovery.set()
            self._recovery = asyncio.Event()
        self._failures = 0
        self._silent_since = None

    async def pause(self, seconds: float) -> None:
        """Wait before another attempt; the wait ends early when the server answers again after an outage."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._recovery.wait()

    def refused(self, status: int, reason: str) -> None:
        """Note a request that the server refused for good, with its status.

        Raises:
            ConfigError, ServerGoneError: too many consecutive requests were refused in the same way to blame the
                requests; a configuration error if none was ever answered.
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
            "are kept: check the account or the server and run the same command again to resume"
        )

    def failed(self, reason: str, allow: float = 0.0) -> None:
        """Note a failed try; ``allow`` is the waiting time in seconds that the server asked for.

        Raises:
            ServerGoneError: no request has been answered for longer than the patience.
        """
        now = self._clock()
        self._failures += 1
        if self._silent_since is None:
            self._silent_since = now
        if allow:
            # Patience lasts longer than the waiting time that the server asked for.
            self._silent_since = max(self._silent_since, now + allow - (1 - _SPARE) * self._patience)
        if self._failures >= FEWEST_FAILURES and now - self._silent_since >= self._patience:
            raise ServerGoneError(
                f"no answer from {self._where} for {self._patience:.0f} s and {self._failures} tries (last: {reason}); "
                "finished episodes are kept: check the server and run the same command again to resume"
            )
