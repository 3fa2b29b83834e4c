"""The weights of a model that several processes train: whole in each process, or sharded (FSDP2).

Code that only reads weights (generation, the Analyzer, scoring without a gradient, saving) uses an ordinary module,
which has its weights within :meth:`WholeModel.whole`. Code that trains uses the other methods. If the model is sharded,
these work on a twin of the module to which PyTorch's ``fully_shard`` was applied: each process has a shard of every
weight, gradient and optimiser state; the weights of a layer are gathered for its forward and backward pass, and its
gradient is summed into the shards. The module itself is empty outside ``whole``, so generation needs no hooks and no
process waits for another within a reply. Saved files are the same, sharded or not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from ...errors import TrainingError
from ...models.extras import need
from ..config import EXTRA
from ..ranks import ALONE, Ranks
from ..tensors import Tensor
from .vision_cache import VisionCache

torch: Any = need("torch", EXTRA)

Item = TypeVar("Item")


class WholeModel:
    """A model whose weights are whole in every process."""

    sharded = False
    """Whether :attr:`model` is empty outside :meth:`whole`."""

    def __init__(self, model: Any, ranks: Ranks = ALONE) -> None:
        """Wrap a loaded model, the same in all processes."""
        self.model, self.ranks = model, ranks

    def whole(self) -> AbstractContextManager[None]:
        """Give :attr:`model` its weights; all processes enter, and none of them trains within it."""
        return nullcontext()

    def vision_cache(self) -> VisionCache:
        """Return a vision cache, valid until the weights change; it encodes within :meth:`whole`."""
        return VisionCache(self.model)

    def trained(self) -> list[Tensor]:
        """Return the trained parameters, for the optimiser of this process."""
        return [each for each in self.model.parameters() if each.requires_grad]

    def train(self, mode: bool) -> None:
        """Switch the trained module between training and evaluation mode."""
        self.model.train(mode)

    def share(self, items: Sequence[Item], filler: Item) -> list[Item]:
        """Return the share of ``items`` that this process differentiates; ``filler`` is an item with no gradient."""
        del filler
        return self.ranks.share(items)

    def forward(self, work: Callable[[Any], Tensor]) -> Tensor:
        """Return ``work(model)``, with its gradient."""
        return work(self.model)

    def sum_gradients(self) -> None:
        """Sum the gradients over all processes; a missing gradient counts as zero."""
        self._fill()
        self.ranks.add(each.grad for each in self.trained())

    def _fill(self) -> None:
        for each in self.trained():
            if each.grad is None:
                each.grad = torch.zeros_like(each)

    def gradient(self) -> Tensor:
        """Return a copy of this process's part of the summed gradient, shape (numbers,)."""
        return torch.cat([each.grad.flatten() for each in self.trained()])

    def total(self, value: Tensor) -> Tensor:
        """Return the sum over the whole gradient, given the sum over :meth:`gradient`."""
        return value

    def clip(self, most: float) -> float:
        """Scale the summed gradient down to the norm ``most``; return its norm before."""
        return torch.nn.utils.clip_grad_norm_(self.trained(), most).item()

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the whole state of an optimiser of :meth:`trained`, in the main process; all processes call this."""
        return optimizer.state_dict()

    def load_optimizer(self, optimizer: Any, path: Path) -> None:
        """Load the saved state of an optimiser, whatever number of processes saved it."""
        saved = torch.load(path, map_location=self.model.device, weights_only=True)
        optimizer.load_state_dict(saved)


class _Root(torch.nn.Module):
    """The root module for FSDP, because the scorer does not call the forward of the model itself."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[Any], Tensor]) -> Tensor:
        """Return ``work(model)``."""
        return work(self.model)


class ShardedModel(WholeModel):
    """A model whose weights are sharded over the processes.

    Every prompt shows a picture, so every micro-batch runs every layer of the vision encoder and the language model,
    and the processes synchronise at each of them.
    """

    sharded = True

    def __init__(self, model: Any, ranks: Ranks) -> None:
        """Shard a loaded model, the same in all processes; it is empty afterwards, see :meth:`whole`."""
        super().__init__(model, ranks)
        fsdp: Any = need("torch.distributed.fsdp", EXTRA)
        layers: Any = need("transformers.modeling_layers", EXTRA)
        kind = torch.device(ranks.device).type
        self._mesh = need("torch.distributed.device_mesh", EXTRA).init_device_mesh(kind, (ranks.count,))
        self._users = 0
        # The twin shares the model's tensors; fully_shard copies this process's shard out of each.
        same = {id(each): torch.nn.Parameter(each.detach(), each.requires_grad) for each in model.parameters()}
        self._root: Any = _Root(deepcopy(model, same))
        units = [each for each in self._root.modules() if isinstance(each, layers.GradientCheckpointingLayer)]
        for unit in [*units, self._root]:
            fsdp.fully_shard(unit, mesh=self._mesh)
            unit.set_gradient_divide_factor(1.0)  # a sum: losses are divided by counts of all processes
            unit.set_force_sum_reduction_for_comms(True)  # gloo cannot scale while it reduces
        self._shares = list(self._root.parameters())
        self._empty()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Gather the weights; see :meth:`WholeModel.whole`. Nested calls do not wait for the other processes."""
        if self._users == 0:
            with torch.no_grad():
                for parameter, share in zip(self.model.parameters(), self._shares, strict=True):
                    parameter.data = share.full_tensor()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._empty()

    def _empty(self) -> None:
        for parameter in self.model.parameters():
            parameter.data = parameter.data.new_empty(0)

    def trained(self) -> list[Tensor]:
        """Return this process's shards of the parameters, as distributed tensors."""
        return [each for each in self._shares if each.requires_grad]

    def train(self, mode: bool) -> None:
        """Switch the twin between training and evaluation mode."""
        self._root.train(mode)

    def share(self, items: Sequence[Item], filler: Item) -> list[Item]:
        """Return equally many items in every process, because all of them synchronise at every layer."""
        mine = self.ranks.share(items)
        most = -(-len(items) // self.ranks.count)
        return [*mine, *[filler] * (most - len(mine))]

    def forward(self, work: Callable[[Any], Tensor]) -> Tensor:
        """Return ``work(twin)``, with its gradient."""
        # The cache of autocast would keep casts to bfloat16 longer than their weights.
        with torch.autocast(torch.device(self.ranks.device).type, enabled=False, cache_enabled=False):
            return self._root(work)

    def sum_gradients(self) -> None:
        """Replace missing gradients by zeros; every backward pass has already summed over the processes."""
        self._fill()

    @torch.no_grad()
    def gradient(self) -> Tensor:
        """Return a copy of this process's shard of the gradient."""
        return torch.cat([each.flatten() for each in self._parts()])

    def _parts(self) -> list[Tensor]:
        return [each.grad.to_local() for each in self.trained()]

    def total(self, value: Tensor) -> Tensor:
        """Return the sum over all processes."""
        summed = value.clone()
        self.ranks.add([summed])
        return summed

    @torch.no_grad()
    def clip(self, most: float) -> float:
        """Scale the gradient as :meth:`WholeModel.clip` does, with the norm over all shards."""
        parts = self._parts()
        norm = self.total(torch.nn.utils.get_total_norm(parts).square()).sqrt()
        scale = (most / (norm + 1e-6)).clamp(max=1.0)
        for each in parts:
            each.mul_(scale)
        return norm.item()

    @torch.no_grad()
    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the whole state; see the base class. Tensors are gathered one after the other, and move to the CPU."""

        def whole(value: Tensor) -> Tensor:
            if not hasattr(value, "full_tensor"):
                return value
            full = value.full_tensor()
            return full.cpu() if self.ranks.is_main else None

        saved = optimizer.state_dict()
        state = {place: {name: whole(value) for name, value in each.items()} for place, each in saved["state"].items()}
        return saved | {"state": state}

    def load_optimizer(self, optimizer: Any, path: Path) -> None:
        """Load this process's shard of the saved state of an optimiser."""
        tensor: Any = need("torch.distributed.tensor", EXTRA)
        saved = torch.load(path, map_location="cpu", mmap=True, weights_only=True)

        def share(value: Tensor) -> Tensor:
            if value.dim() == 0:  # the number of steps
                return value.clone()
            return tensor.distribute_tensor(value, self._mesh, [tensor.Shard(0)], src_data_rank=None).clone()

        state = {place: {name: share(value) for name, value in each.items()} for place, each in saved["state"].items()}
        optimizer.load_state_dict(saved | {"state": state})


def distribute(model: Any, ranks: Ranks, *, shard: bool) -> WholeModel:
    """Return a loaded model, whole in every process or sharded over them."""
    return ShardedModel(model, ranks) if shard else WholeModel(model, ranks)


def check_processes(ranks: Ranks, *, shard: bool) -> None:
    """Check that a sharded run has several processes.

    Raises:
        TrainingError: it has one.
    """
    if shard and ranks.count == 1:
        raise TrainingError(
            "--shard: found one process, expected several to spread the weights over; start them with "
            "`torchrun --nproc-per-node 8 -m pivot train rl ... --shard`, or remove --shard"
        )
