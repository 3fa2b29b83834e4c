"""Where the weights of a model are while several processes train it: whole in each, or a share in each (FSDP2).

Whatever only reads weights (generation, the Analyzer, scoring without a gradient, saving) gets an ordinary module that
holds them whole within :meth:`WholeModel.whole`. Whatever learns goes through the other methods. Sharded, these work on
a twin of the module that PyTorch's ``fully_shard`` has cut up: weights, gradients and optimiser state are shares of
every tensor, a layer's weights come together for its own forward and backward pass, and its gradient goes to the shares
as a sum. The module itself is empty but within ``whole``, so that generation needs no hooks and no process waits for
another in the middle of a reply. What is saved is the same, sharded or not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from ...errors import TrainingError
from ...models.extras import need
from ..encode import EXTRA
from ..ranks import ALONE, Ranks
from ..tensors import Tensor
from .vision_cache import Eye

torch: Any = need("torch", EXTRA)

Item = TypeVar("Item")


class WholeModel:
    """A model whose weights every process holds whole."""

    sharded = False
    """Whether :attr:`model` is empty but within :meth:`whole`."""

    def __init__(self, model: Any, ranks: Ranks = ALONE) -> None:
        """Hold a loaded model, the same in all processes."""
        self.model, self.ranks = model, ranks

    def whole(self) -> AbstractContextManager[None]:
        """Let :attr:`model` hold its weights; all processes enter, and none of them may learn meanwhile."""
        return nullcontext()

    def eye(self) -> Eye:
        """Return an eye of these weights, for as long as they stay as they are; it sees within :meth:`whole`."""
        return Eye(self.model)

    def trained(self) -> list[Tensor]:
        """Return the parameters that learn: what an optimiser of this process is to step."""
        return [each for each in self.model.parameters() if each.requires_grad]

    def train(self, mode: bool) -> None:
        """Switch what learns between training and evaluation."""
        self.model.train(mode)

    def share(self, items: Sequence[Item], filler: Item) -> list[Item]:
        """Return what of ``items`` this process has to differentiate; ``filler`` is one that adds nothing."""
        del filler
        return self.ranks.share(items)

    def forward(self, work: Callable[[Any], Tensor]) -> Tensor:
        """Return what ``work`` makes with the model, with its gradient."""
        return work(self.model)

    def sum_gradients(self) -> None:
        """Add the gradients of all processes up; one without any brings zeros."""
        self._fill()
        self.ranks.add(each.grad for each in self.trained())

    def _fill(self) -> None:
        for each in self.trained():
            if each.grad is None:
                each.grad = torch.zeros_like(each)

    def gradient(self) -> Tensor:
        """Return a copy of what this process holds of the summed gradient, shape (numbers,)."""
        return torch.cat([each.grad.flatten() for each in self.trained()])

    def total(self, value: Tensor) -> Tensor:
        """Return the sum over the whole gradient of which ``value`` is the sum over :meth:`gradient`."""
        return value

    def clip(self, most: float) -> float:
        """Scale the summed gradient down to the norm ``most``; return what its norm was."""
        return torch.nn.utils.clip_grad_norm_(self.trained(), most).item()

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the whole state of an optimiser of :meth:`trained`; all processes ask, the main one gets it."""
        return optimizer.state_dict()

    def load_optimizer(self, optimizer: Any, path: Path) -> None:
        """Give an optimiser the state that was saved, by however many processes."""
        saved = torch.load(path, map_location=self.model.device, weights_only=True)
        optimizer.load_state_dict(saved)


class _Root(torch.nn.Module):
    """What FSDP takes for the root: the scorer never calls the forward of the model itself."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[Any], Tensor]) -> Tensor:
        """Return what ``work`` makes with the model."""
        return work(self.model)


class ShardedModel(WholeModel):
    """A model of whose weights every process holds a share.

    Every prompt shows a picture, so that every micro-batch runs every layer of both halves of the model, and the
    processes meet at all of them.
    """

    sharded = True

    def __init__(self, model: Any, ranks: Ranks) -> None:
        """Cut up a loaded model, the same in all processes; it is empty afterwards, see :meth:`whole`."""
        super().__init__(model, ranks)
        fsdp: Any = need("torch.distributed.fsdp", EXTRA)
        layers: Any = need("transformers.modeling_layers", EXTRA)
        kind = torch.device(ranks.device).type
        self._mesh = need("torch.distributed.device_mesh", EXTRA).init_device_mesh(kind, (ranks.count,))
        self._users = 0
        # The twin begins with the very tensors of the model; cutting copies this process's share out of each.
        same = {id(each): torch.nn.Parameter(each.detach(), each.requires_grad) for each in model.parameters()}
        self._root: Any = _Root(deepcopy(model, same))
        units = [each for each in self._root.modules() if isinstance(each, layers.GradientCheckpointingLayer)]
        for unit in [*units, self._root]:
            fsdp.fully_shard(unit, mesh=self._mesh)
            unit.set_gradient_divide_factor(1.0)  # a sum: losses are divided by counts of all processes
            unit.set_force_sum_reduction_for_comms(True)  # gloo cannot multiply on the way
        self._shares = list(self._root.parameters())
        self._empty()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """See :meth:`WholeModel.whole`; may be nested. Only the first to enter waits for the other processes."""
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
        """Return this process's shares of the parameters, as distributed tensors."""
        return [each for each in self._shares if each.requires_grad]

    def train(self, mode: bool) -> None:
        """Switch the twin."""
        self._root.train(mode)

    def share(self, items: Sequence[Item], filler: Item) -> list[Item]:
        """Return equally many for every process, since all of them meet in every layer."""
        mine = self.ranks.share(items)
        most = -(-len(items) // self.ranks.count)
        return [*mine, *[filler] * (most - len(mine))]

    def forward(self, work: Callable[[Any], Tensor]) -> Tensor:
        """Return what ``work`` makes with the twin."""
        # Casts to bfloat16 that autocast remembers would outlive the weights that they were made of.
        with torch.autocast(torch.device(self.ranks.device).type, enabled=False, cache_enabled=False):
            return self._root(work)

    def sum_gradients(self) -> None:
        """Only see that there are some: every backward pass has added to the shares."""
        self._fill()

    @torch.no_grad()
    def gradient(self) -> Tensor:
        """Return a copy of this process's share of the gradient."""
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
        """See :meth:`WholeModel.clip`; the same formula over all shares."""
        parts = self._parts()
        norm = self.total(torch.nn.utils.get_total_norm(parts).square()).sqrt()
        scale = (most / (norm + 1e-6)).clamp(max=1.0)
        for each in parts:
            each.mul_(scale)
        return norm.item()

    @torch.no_grad()
    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """See :meth:`WholeModel.optimizer_state`; tensor after tensor comes together, and goes to the CPU."""

        def whole(value: Tensor) -> Tensor:
            if not hasattr(value, "full_tensor"):
                return value
            full = value.full_tensor()
            return full.cpu() if self.ranks.is_main else None

        saved = optimizer.state_dict()
        state = {place: {name: whole(value) for name, value in each.items()} for place, each in saved["state"].items()}
        return saved | {"state": state}

    def load_optimizer(self, optimizer: Any, path: Path) -> None:
        """Give an optimiser its share of the state that was saved."""
        tensor: Any = need("torch.distributed.tensor", EXTRA)
        saved = torch.load(path, map_location="cpu", mmap=True, weights_only=True)

        def share(value: Tensor) -> Tensor:
            if value.dim() == 0:  # how many steps there were
                return value.clone()
            return tensor.distribute_tensor(value, self._mesh, [tensor.Shard(0)], src_data_rank=None).clone()

        state = {place: {name: share(value) for name, value in each.items()} for place, each in saved["state"].items()}
        optimizer.load_state_dict(saved | {"state": state})


def hold(model: Any, ranks: Ranks, *, shard: bool) -> WholeModel:
    """Return a loaded model as the processes are to hold it; sharded, its weights are given away at once."""
    return ShardedModel(model, ranks) if shard else WholeModel(model, ranks)


def check_processes(ranks: Ranks, *, shard: bool) -> None:
    """See that there is somebody to share with.

    Raises:
        TrainingError: there is nobody.
    """
    if shard and ranks.count == 1:
        raise TrainingError(
            "--shard: found one process, expected several to spread the weights over; start them with "
            "`torchrun --nproc-per-node 8 -m pivot train rl ... --shard`, or leave --shard out"
        )
