"""The processes that train together: their shares of the work, and collective operations.

Work is assigned by index, results are gathered by index, gradients are summed. Means are divided by counts over all
processes, which each process computes first, so that any number of processes makes the same update.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from ..models.extras import need
from .config import EXTRA

torch: Any = need("torch", EXTRA)

PATIENCE = timedelta(days=1)
"""Timeout of collective operations: one process may wait for a server. The default of ten minutes is too short. If a
process dies, the launcher ends the others."""

Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process and the number of processes that train together."""

    rank: int = 0
    count: int = 1
    device: Any = "cpu"
    """Device of this process."""

    @classmethod
    def current(cls) -> "Ranks":
        """Connect the processes that a launcher such as torchrun started (over gloo without a GPU), if there is one."""
        accelerate = need("accelerate", EXTRA)
        state = accelerate.PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
        return cls(state.process_index, state.num_processes, state.device)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and shows messages for all."""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Return this process's share of the items."""
        return list(items[self.rank :: self.count])

    def join(self, mine: Mapping[Key, Item]) -> dict[Key, Item]:
        """Return the results of all processes, by their keys."""
        if self.count == 1:
            return dict(mine)
        parts: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(parts, dict(mine))
        return {key: value for part in parts for key, value in part.items()}

    def add(self, tensors: Iterable[Any]) -> None:
        """Replace tensors by their sums over all processes."""
        if self.count > 1:
            for tensor in tensors:
                torch.distributed.all_reduce(tensor)

    def wait(self) -> None:
        """Wait until every process calls this."""
        if self.count > 1:
            torch.distributed.barrier()


ALONE = Ranks()
"""A process that trains alone."""
