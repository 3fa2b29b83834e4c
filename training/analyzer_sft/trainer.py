"""The trainer of Stage I: supervised fine-tuning of the Analyzer on labelled failures.

The trainer is that of the transformers library with a loss that gives every record the same weight whatever the length
of its target, an order of the records that is a function of seed and epoch, and checks of both. An update takes
``batch`` records, however they are spread over processes and accumulation steps; the last records of an epoch that do
not fill a batch are left out and counted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from ...core.errors import TrainingError
from ...core.storage import Storage
from ...models.extras import need
from .. import checkpoint as on_disk
from ..config import EXTRA
from ..curves import draw_losses
from ..encode import IGNORED, Batch, Encoder, Reply
from ..loading import add_adapters, load_adapters, load_weights, processor_of, recompute_activations, uses_bf16
from ..tensors import Scalar, Tensor
from .config import SftConfig
from .samples import Sample, TrainingData, epoch_order

torch: Any = need("torch", EXTRA)
transformers: Any = need("transformers", EXTRA)

IDS = "episode_ids"
Report = Callable[[str], None]


def record_loss(logprobs: Tensor, mask: Tensor) -> Scalar:
    """Return the mean over records of the mean negative log-likelihood over the record's own target tokens.

    A long target weighs as much as a short one. Micro-batches of equal numbers
    of records can therefore be averaged, over accumulation steps and over processes.

    Args:
        logprobs: log-probabilities, shape (records, tokens); any value where ``mask`` is False.
        mask: supervised tokens, at least one per record, bool, shape (records, tokens).
    """
    counts = mask.sum(dim=1)
    return -((logprobs * mask).sum(dim=1) / counts).mean()


class AnalyzerTrainer(transformers.Trainer):
    """The library's trainer with the loss of the specification; a loss or gradient that is not finite stops it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make the trainer, with the arguments of the library's."""
        super().__init__(*args, **kwargs)
        # The mean over a micro-batch is what compute_loss returns; the library then divides by the accumulation steps.
        self.model_accepts_loss_kwargs = False
        self._counts = torch.zeros(3)

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of one micro-batch.

        Raises:
            TrainingError: the loss is not finite.
        """
        del num_items_in_batch
        ids = inputs.pop(IDS, ())
        labels = inputs.pop("labels")[:, 1:]
        kept = (labels != IGNORED).any(dim=0).nonzero().squeeze(1)  # the vocabulary is scored for targets alone
        logits, labels = model(**inputs, use_cache=False, logits_to_keep=kept).logits, labels[:, kept]
        mask, targets = labels != IGNORED, labels.clamp(min=0)
        logprobs = logits.log_softmax(dim=-1).gather(2, targets[..., None]).squeeze(2)
        loss = record_loss(logprobs, mask)
        self._stop_unless_finite(loss.detach(), "loss", ids)
        self.last_ids = ids
        if model.training:
            right = (logits.detach().argmax(dim=-1) == targets) & mask
            self._counts += torch.stack([right.sum(), mask.sum(), inputs["attention_mask"].sum()]).float().cpu()
        return (loss, {}) if return_outputs else loss

    def _stop_unless_finite(self, value: Any, what: str, ids: Sequence[str]) -> None:
        bad = (~torch.isfinite(value)).float()
        if self.accelerator.num_processes > 1:  # all processes stop, so that none waits for another
            bad = self.accelerator.reduce(bad, "sum")
        if bad.item():
            mine = ", ".join(ids) if not torch.isfinite(value).item() else "those of another process"
            raise TrainingError(
                f"the {what} became {value.item()} in update {self.state.global_step + 1} (records: {mine}); expected "
                "a finite number. The last checkpoint is kept: repair these records, or start again with a lower --lr "
                "and another --out"
            )

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load all weights of a checkpoint, translating the names under which they were saved.

        Qwen2.5-VL is saved under names that differ from those of its modules. The library's own method does not
        translate them: it finds no weights, shows a warning, and continues with the weights the run started from.
        """
        if getattr(self.model, "_hf_peft_config_loaded", False):
            load_adapters(self.model, Path(resume_from_checkpoint))
            return
        saved = type(self.model).from_pretrained(resume_from_checkpoint, dtype=self.model.dtype)
        self.model.load_state_dict(saved.state_dict())

    def take_counts(self) -> tuple[float, int]:
        """Return the share of target tokens that were most likely, and all tokens, since the last call by all ranks."""
        counts, self._counts = self._counts, torch.zeros(3)
        if self.accelerator.num_processes > 1:
            counts = self.accelerator.reduce(counts.to(self.accelerator.device), "sum")
        right, supervised, tokens = counts.tolist()
        return right / max(1.0, supervised), int(tokens)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Save a checkpoint; a full disk is a TrainingError."""
        with on_disk.writing(self.args.output_dir):
            super()._save_checkpoint(*args, **kwargs)


class RunLog(transformers.TrainerCallback):
    """A callback that writes metrics line by line, seals checkpoints, and refuses a gradient that is not finite."""

    def __init__(self, storage: Storage, steps_per_epoch: int, report: Report) -> None:
        """Write to the folder of a run."""
        self._storage = storage
        self._steps_per_epoch = steps_per_epoch
        self._report = report
        self._started = self._last = perf_counter()
        self._resumed_at = 0
        self.trainer: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        self._started = self._last = perf_counter()
        self._resumed_at = state.global_step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check the gradient."""
        gradients = [each.grad for each in self.trainer.model.parameters() if each.grad is not None]
        if gradients:
            norm = torch.nn.utils.get_total_norm(gradients)
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # sharded gradients have a sharded norm
            self.trainer._stop_unless_finite(norm, "gradient", self.trainer.last_ids)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Append a line of metrics, and report some of them."""
        if not logs or not {"loss", "eval_loss"} & logs.keys():
            return
        speed: dict[str, float] = {}
        if "loss" in logs:
            now, (accuracy, tokens) = perf_counter(), self.trainer.take_counts()
            speed = {"token_accuracy": accuracy, "tokens_per_second": round(tokens / (now - self._last), 1)}
        self._last = perf_counter()
        if not state.is_world_process_zero:
            return
        line: dict[str, Any] = {"step": state.global_step, "epoch": state.global_step / self._steps_per_epoch}
        names = {"loss": "loss", "eval_loss": "validation_loss", "grad_norm": "grad_norm", "learning_rate": "lr"}
        line |= {ours: logs[theirs] for theirs, ours in names.items() if theirs in logs}
        line |= {**speed, "seconds": round(perf_counter() - self._started, 3)}
        path = self._storage.local_path(on_disk.METRICS)
        with on_disk.writing(path), path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        if "validation_loss" in line or state.global_step % max(1, state.max_steps // 20) == 0:
            shown = " ".join(f"{name} {line[name]:.4g}" for name in ("loss", "validation_loss", "lr") if name in line)
            if speed:
                left = line["seconds"] / max(1, state.global_step - self._resumed_at)
                left = on_disk.duration(left * (state.max_steps - state.global_step))
                pace = f"{speed['tokens_per_second']:.0f} tokens/s, {left} left"
                shown = f"{shown} token accuracy {speed['token_accuracy']:.3f}; {pace}"
            self._report(f"update {state.global_step} of {state.max_steps}: {shown}")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Seal the checkpoint when every process has written its part."""
        self.trainer.accelerator.wait_for_everyone()
        if state.is_world_process_zero:
            on_disk.seal(self._storage, state.global_step)
            on_disk.clear_seals(self._storage)
            draw_losses(self._storage)


class Collate:
    """Turns indices of samples into a batch."""

    def __init__(self, encoder: Encoder, samples: Sequence[Sample]) -> None:
        """Collate ``samples``."""
        self._encoder, self._samples = encoder, samples

    def __call__(self, indices: Sequence[int]) -> Batch:
        """Return the batch of some samples, with the ids of its episodes."""
        samples = [self._samples[index] for index in indices]
        return encode_samples(self._encoder, samples) | {IDS: [sample.episode_id for sample in samples]}


def encode_samples(encoder: Encoder, samples: Sequence[Sample]) -> Batch:
    """Return the tensors of some samples: prompt, collage and target."""
    return encoder.batch(
        [Reply(sample.prompt, [sample.picture], encoder.reply_tokens(sample.target)) for sample in samples]
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The numbers of records, updates and accumulation steps of a run."""

    records: int
    epochs: int
    steps_per_epoch: int
    accumulation: int
    left_out: int
    """Records per epoch that do not fill a batch."""

    @property
    def steps(self) -> int:
        """Total number of updates."""
        return self.epochs * self.steps_per_epoch


def make_plan(config: SftConfig, records: int, processes: int) -> Plan:
    """Return the plan of a run.

    Raises:
        TrainingError: a batch does not divide over the processes, or there are too few records for one.
    """
    share = config.micro_batch * processes
    if config.batch % share:
        raise TrainingError(
            f"batch {config.batch} cannot be spread over {processes} processes of {config.micro_batch} records, "
            f"expected a multiple of {share}; set --batch or --micro-batch"
        )
    steps = records // config.batch
    if not steps:
        raise TrainingError(
            f"found {records} training records, expected at least one batch of {config.batch}; lower --batch"
        )
    return Plan(records, config.epochs, steps, config.batch // share, records - steps * config.batch)


def load_model(config: SftConfig) -> tuple[Any, Any]:
    """Load model and processor; adapters train over weights in the precision of the computation.

    With ``check_only`` the processor alone is loaded, and the model is None.

    Raises:
        TrainingError: the model does not exist, or is of an unsupported kind.
    """
    if config.check_only:
        return None, processor_of(config.model, config.revision)
    dtype = torch.bfloat16 if config.lora and uses_bf16(config.precision) else torch.float32
    model, processor = load_weights(config.model, config.revision, dtype)
    if config.lora:
        add_adapters(model, config.lora_rank, config.lora_alpha, config.seed)
    return model, processor


def arguments(config: SftConfig, plan: Plan, out: Path) -> Any:
    """Return the library's settings for a run, which is one pass over the records of all epochs."""
    every = config.save_every or plan.steps_per_epoch
    made = transformers.TrainingArguments(
        output_dir=str(out / on_disk.CHECKPOINTS),
        num_train_epochs=1,
        max_steps=plan.steps,
        train_sampling_strategy="sequential",
        per_device_train_batch_size=config.micro_batch,
        per_device_eval_batch_size=config.micro_batch,
        gradient_accumulation_steps=plan.accumulation,
        learning_rate=config.lr,
        lr_scheduler_type="constant_with_warmup" if config.schedule == "constant" else config.schedule,
        warmup_steps=round(config.warmup * plan.steps),
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        optim="adamw_torch_fused" if torch.cuda.is_available() else "adamw_torch",
        bf16=uses_bf16(config.precision),
        use_cpu=not torch.cuda.is_available(),
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=on_disk.KEPT,
        eval_strategy="steps" if config.evaluate else "no",
        eval_steps=every,
        seed=config.seed,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        report_to=list(config.report_to) or "none",
        disable_tqdm=True,
    )
    made._n_gpu = 1  # one GPU per process: several that are visible would each take a micro-batch
    return made


def make_trainer(
    config: SftConfig, plan: Plan, data: TrainingData, model: Any, encoder: Encoder, out: Path
) -> AnalyzerTrainer:
    """Return the trainer of a run."""
    orders = [epoch_order(plan.records, config.batch, config.seed, epoch) for epoch in range(plan.epochs)]
    held_out = range(len(data.train), len(data.train) + len(data.validation))
    if config.gradient_checkpointing:
        recompute_activations(model)
    trainer = AnalyzerTrainer(
        model=model,
        args=arguments(config, plan, out),
        train_dataset=[index for order in orders for index in order],
        eval_dataset=list(held_out) if config.evaluate else None,
        data_collator=Collate(encoder, [*data.train, *data.validation]),
        processing_class=encoder.processor,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer
