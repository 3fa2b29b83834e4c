"""The processes that train together: who takes what, and how sums come together.

Work is dealt out by place, results are gathered by place, gradients are sums. The counts that means divide by are
those of all processes, known to each of them beforehand, so that any number of processes gives the same update.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..models.extras import need
from .encode import EXTRA

torch: Any = need("torch", EXTRA)

Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train together."""

    rank: int = 0
    count: int = 1
    device: Any = "cpu"
    """Where this process computes."""

    @classmethod
    def current(cls) -> "Ranks":
        """Join the processes that a launcher such as torchrun started, over gloo without a GPU; alone without one."""
        state = need("accelerate", EXTRA).PartialState(cpu=not torch.cuda.is_available())
        return cls(state.process_index, state.num_processes, state.device)

    @property
    def is_main(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Return what falls to this process."""
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
        """Wait until every process has come here."""
        if self.count > 1:
            torch.distributed.barrier()


ALONE = Ranks()
"""A process that nobody trains beside."""
