"""The processes that train together: who takes what, and how sums come together.

Work is dealt out by place, results are gathered by place, gradients are sums. The counts that means divide by are
those of all processes, known to each of them beforehand, so that any number of processes gives the same update.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from ..errors import PivotError, TrainingError
from ..models.extras import need
from .encode import EXTRA

torch: Any = need("torch", EXTRA)

PATIENCE = timedelta(days=1)
"""How long processes wait for each other: one checks a large dataset alone, which takes hours, or waits for servers;
libraries for GPUs give up after ten minutes. Where one dies, the launcher ends the others."""

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
        accelerate = need("accelerate", EXTRA)
        state = accelerate.PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
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

    def by_one(self, work: Callable[[], Item]) -> Item:
        """Let the main process do some work while the others wait; return its result, or raise its error, in all.

        The result travels pickled, over gloo.

        Raises:
            PivotError: what the work raised. TrainingError: elsewhere, where the main process met another error.
        """
        if self.count == 1:
            return work()
        outcome: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.is_main:
            try:
                outcome[0] = work()
            except PivotError as error:
                outcome[1] = failure = error
            except BaseException as error:  # noqa: BLE001 - raised again below, once the others know
                outcome[1] = TrainingError(f"the first process ended with {type(error).__name__}: {error}")
                failure = error
        group = torch.distributed.new_group(backend="gloo", timeout=PATIENCE)
        torch.distributed.broadcast_object_list(outcome, group=group)
        torch.distributed.destroy_process_group(group)
        failure = failure or outcome[1]
        if failure is not None:
            raise failure
        return outcome[0]

    def wait(self) -> None:
        """Wait until every process has come here."""
        if self.count > 1:
            torch.distributed.barrier()


ALONE = Ranks()
"""A process that nobody trains beside."""
