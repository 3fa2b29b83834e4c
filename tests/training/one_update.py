"""Make one update of four records and save its loss and gradient: alone, in steps, or as one of two processes."""

from pathlib import Path
from typing import Any

from pivot.models.extras import need
from pivot.tests.training.small import config_of, uneven
from pivot.training.analyzer_sft.trainer import load_model, make_plan, make_trainer
from pivot.training.encode import Encoder

torch: Any = need("torch", "train")
transformers: Any = need("transformers", "train")


class Keep(transformers.TrainerCallback):
    """A callback that keeps the gradient given to the optimizer."""

    def __init__(self) -> None:
        self.model: Any = None
        self.gradient: dict[str, Any] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Copy the gradient."""
        named = self.model.named_parameters()
        self.gradient = {name: each.grad.clone() for name, each in named if each.grad is not None}


def one_update(dataset: Path, folder: Path, out: Path, micro_batch: int, processes: int, dtype: Any) -> dict[str, Any]:
    """Return the loss and the gradient of one update."""
    config = config_of(dataset, folder, epochs=1, micro_batch=micro_batch, max_grad_norm=1e9)
    model, processor = load_model(config)
    model.to(dtype)
    data = uneven(dataset)
    trainer = make_trainer(config, make_plan(config, 4, processes), data, model, Encoder(processor), out)
    keep = Keep()
    keep.model = model
    trainer.add_callback(keep)
    trainer.train()
    (loss,) = (entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
    return {"loss": loss, "gradient": keep.gradient, "main": trainer.is_world_process_zero()}


def save_update(dataset: Path, folder: Path, out: Path) -> None:
    """Make the update as one of two processes; the first saves it."""
    torch.set_num_threads(1)
    made = one_update(dataset, folder, out, 2, 2, torch.float64)
    if made["main"]:
        torch.save(made, out / "made.pt")
