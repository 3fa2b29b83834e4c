"""The one typed config of a training run: all that decides its weights, resolved before anything starts.

``OUT/run.json`` holds it; a recipe is a file with some of its fields and the reasons beside them. Numbers are those of
the paper where it gives them (spec section 8).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from ..errors import TrainingError
from ..labeling.vocabulary import Vocabulary
from ..models.address import bare_url
from ..plugins import Settings, explain
from ..storage import open_storage
from .policy_rl.hindsight.contexts import ARMS
from .policy_rl.losses import OpdObjective

Precision = Literal["auto", "bf16", "fp32"]
Schedule = Literal["constant", "linear", "cosine"]

AnyConfig = TypeVar("AnyConfig", bound=Settings)

RECIPES = Path(__file__).with_name("recipes")
RECIPE_SUFFIX = ".yaml"


class Shape(Settings):
    """The architecture that a recipe is for, for an estimate where the model itself is not at hand."""

    model_type: str
    """Such as ``qwen2_5_vl``."""
    text: dict[str, Any]
    """``text_config`` of the model."""
    vision: dict[str, Any]
    """``vision_config`` of the model."""
    tie_word_embeddings: bool = True


class SftConfig(Settings):
    """A run of Stage I: supervised fine-tuning of the Analyzer."""

    dataset: str
    """A store, a dataset folder, or a hub id."""
    model: str
    """A ``save_pretrained`` folder, or a hub id."""
    revision: str | None = None
    """Revision of the model on the hub."""
    configs: tuple[str, ...] = ("all",)
    """Environments to train on together, or ``all``. The paper trains one checkpoint an environment."""
    epochs: int = Field(default=3, ge=1, le=100_000)
    """Passes over the training side."""
    lr: float = Field(default=2e-6, gt=0)
    """Peak learning rate of AdamW."""
    batch: int = Field(default=8, ge=1)
    """Records an update, over all processes and accumulation steps."""
    micro_batch: int = Field(default=1, ge=1)
    """Records that one process holds in memory at a time; it changes no result beyond rounding."""
    max_length: int = Field(default=8192, ge=1)
    """Longest record in tokens, its picture's included; a longer one is refused, never cut."""
    schedule: Schedule = "cosine"
    """How the learning rate falls after its warm-up (the paper is silent)."""
    warmup: float = Field(default=0.03, ge=0, lt=1)
    """Share of the updates in which the learning rate rises."""
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    """The gradient is scaled down to this norm."""
    precision: Precision = "auto"
    """``bf16`` computes in bfloat16 over weights kept in float32; ``auto`` is bf16 on a GPU, fp32 elsewhere."""
    gradient_checkpointing: bool = True
    """Compute activations again in the backward pass: a third more time, a fraction of the memory."""
    lora: bool = False
    """Train low-rank adapters of the language model, and merge them into the checkpoint."""
    lora_rank: int = Field(default=64, ge=1)
    lora_alpha: int = Field(default=128, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    streaming: bool = False
    """Read the training side from its files with every epoch, mixed within a buffer, instead of holding it."""
    target_vocabulary: Vocabulary | None = None
    """Words for failure modes that prompts and targets shall use; None takes them as the dataset has them."""
    save_every: int = Field(default=0, ge=0)
    """Updates between checkpoints; 0 saves at the end of every epoch."""
    evaluate: bool = True
    """Whether the loss on the validation side is measured with every checkpoint."""
    loader_workers: int = Field(default=0, ge=0)
    """Processes a rank that prepare batches; 0 prepares them in the training process."""
    report_to: tuple[str, ...] = ()
    """Trackers of the transformers library, such as wandb or tensorboard."""
    shape: Shape | None = None
    """Of the model, for ``--dry-run`` where it cannot be loaded."""

    @field_validator("configs")
    @classmethod
    def _some(cls, configs: tuple[str, ...]) -> tuple[str, ...]:
        if not configs:
            raise ValueError("found none, expected environments, or all")
        return configs


PAPER_UPDATES = {"sokoban": 350}
PAPER_PROMPTS = {"navigation": 8}
"""Where an environment differs from the others (spec section 8)."""


class RlConfig(Settings):
    """A run of Stage II: GRPO with gated self-distillation on one environment. Defaults are the paper's."""

    env: str
    """Environment, such as ``sokoban``."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Of the environment, such as ``{"horizon": 2}``."""
    model: str
    """A ``save_pretrained`` folder, or a hub id; which one an arm starts from is the user's choice."""
    revision: str | None = None
    """Revision of the model on the hub."""
    arm: str = "mp"
    """What the Teacher is told, and by whom; see ``pivot.training.policy_rl.hindsight.contexts``."""
    teacher_model: str | None = None
    """Of the arm ``sdar`` alone: the frozen larger model, a folder or a hub id."""
    teacher_revision: str | None = None
    """Revision of it on the hub."""
    teacher_url: str | None = None
    """Where that model is served, by the name ``teacher_model``, if it is not to be loaded into this process."""
    updates: int = Field(default=0, ge=0)
    """Updates in all; 0 for the paper's 250 (Sokoban 350)."""
    prompts: int = Field(default=0, ge=0)
    """Levels an update; 0 for the paper's 16 (Navigation 8)."""
    rollouts: int = Field(default=8, ge=2)
    """Episodes a level: the group that advantages are taken in."""
    levels: int = Field(default=0, ge=0)
    """Different levels that the run draws from, held-out ones included; 0 for as many as the paper has."""
    held_out: float = Field(default=0.1, gt=0, lt=1)
    """Share of the levels that is kept for validation."""
    lr: float = Field(default=1e-6, gt=0)
    """Learning rate of AdamW, constant."""
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    """The gradient is scaled down to this norm."""
    minibatch: int = Field(default=64, ge=1)
    """Steps of episodes in one optimiser step."""
    lora: bool = False
    """Train low-rank adapters of the language model. The model without them is the reference, so there is no second
    copy of the weights; servers are handed the adapters while they run."""
    lora_rank: int = Field(default=64, ge=1)
    lora_alpha: int = Field(default=128, ge=1)
    micro_batch_tokens: int = Field(default=16_384, ge=1)
    """Tokens, padding included, that are in memory at a time; it changes no result beyond rounding."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of the return that advantages are made of. The paper's 0.95 cannot give its own returns."""
    invalid_penalty: float = Field(default=0.1, ge=0)
    """Taken from the return for every reply that broke the format; the logged return goes without."""
    clip: float = Field(default=0.2, gt=0, lt=1)
    kl: float = Field(default=0.01, ge=0)
    """Weight of the distance to the weights that the run starts from; 0 needs no copy of them."""
    opd: float = Field(default=0.01, ge=0)
    """``lambda_opd``, weight of the distillation."""
    beta: float = Field(default=5.0, ge=0)
    """``beta_opd``, slope of the gate."""
    opd_objective: OpdObjective = "printed"
    """``printed`` is the paper's; ``centred`` and ``gap`` are extensions that also lower what the Teacher dislikes."""
    opd_scope: Literal["all", "pivot"] = "all"
    """Which tokens of a failure are distilled: all of them, or those of the pivot step (an extension)."""
    max_tokens: int = Field(default=512, ge=1, le=512)
    """Longest reply of the Student."""
    analyzer_tokens: int = Field(default=512, ge=1)
    """Longest reply of the Analyzer."""
    target_vocabulary: Vocabulary = "certificate"
    """Words for failure modes that the Analyzer is asked for, and that the Teacher is told: those of Stage I."""
    engine: Literal["in-process", "vllm"] = "in-process"
    """What generates: the trained module itself, or vLLM servers that the run starts on this machine."""
    server_command: str = "python -m vllm.entrypoints.openai.api_server"
    """Of the engine ``vllm``: what starts a server, with options such as ``--dtype bfloat16``. Model, name, address and
    what log-probabilities mean are added to it."""
    server_devices: tuple[str, ...] = ()
    """A server for each of these, which are what CUDA_VISIBLE_DEVICES says in it; one server if there are none."""
    hand_over: Literal["restart", "nccl", "ipc"] = "restart"
    """How servers get all weights after an update: started again on them, or sent them while they run, over NCCL from
    GPU to GPU or by CUDA IPC within one. Adapters are swapped in any case."""
    generate: int = Field(default=32, ge=1)
    """Replies that are generated together. Which ones are is part of rounding, so it is kept through a run."""
    precision: Precision = "auto"
    """``bf16`` computes in bfloat16 over weights kept in float32; ``auto`` is bf16 on a GPU, fp32 elsewhere."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: a third more time, a fraction of the memory."""
    shard: bool = False
    """Spread weights, reference, gradients and AdamW's state over the processes, instead of all of them in each."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    validate_every: int = Field(default=25, ge=0)
    """Updates between two validations; 0 for none but the last."""
    validation_episodes: int = Field(default=128, ge=0)
    """Episodes of a validation, on held-out levels; 0 for no validation."""
    validation_temperature: float = Field(default=0.4, ge=0, le=2)
    save_every: int = Field(default=25, ge=1)
    """Updates between two checkpoints."""
    keep_rollouts: int = Field(default=1, ge=0)
    """Every how many updates the rollouts are stored; 0 for never."""

    @model_validator(mode="before")
    @classmethod
    def _as_in_the_paper(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        env = fields.get("env", "")
        paper = {"updates": PAPER_UPDATES.get(env, 250), "prompts": PAPER_PROMPTS.get(env, 16)}
        return fields | {name: fields.get(name) or value for name, value in paper.items()}

    @field_validator("teacher_url")
    @classmethod
    def _without_credentials(cls, url: str | None) -> str | None:
        return url and bare_url(url)

    @field_validator("arm")
    @classmethod
    def _some_arm(cls, arm: str) -> str:
        if arm not in ARMS:
            raise ValueError(f"found {arm!r}, expected one of: {', '.join(ARMS)}")
        return arm

    @model_validator(mode="after")
    def _fits_the_arm(self) -> "RlConfig":
        asked = ARMS[self.arm].analyzer
        if (asked == "frozen") != (self.teacher_model is not None):
            found = "none" if self.teacher_model is None else repr(self.teacher_model)
            expected = "a frozen larger model (--teacher-model)" if asked == "frozen" else "none: it teaches itself"
            raise ValueError(f"arm {self.arm}: found {found} for a Teacher, expected {expected}")
        if self.teacher_url is not None and asked != "frozen":
            raise ValueError(f"arm {self.arm}: found a --teacher-url, expected none: it teaches itself")
        if self.hand_over != "restart" and (self.engine != "vllm" or self.lora):
            found = "adapters, which are swapped" if self.lora else f"engine {self.engine}, which needs none"
            raise ValueError(f"hand_over {self.hand_over!r}: found {found}, expected engine 'vllm' and all weights")
        if self.opd_scope == "pivot" and asked not in ("model", "solver"):
            raise ValueError(f"opd_scope 'pivot': arm {self.arm} names no step, expected scope 'all'")
        return self


RL_NOT_RESULTS = (
    "updates",
    "micro_batch_tokens",
    "shard",
    "save_every",
    "keep_rollouts",
    "teacher_url",
    "server_command",
    "server_devices",
    "hand_over",
)
"""Fields of Stage II that decide no weight beyond rounding."""
RL_MAY_CHANGE = tuple(name for name in RL_NOT_RESULTS if name != "keep_rollouts")
"""Those that may differ when a run is gone on with; the store of rollouts has one shard for every so many updates."""

NOT_RESULTS = ("micro_batch", "save_every", "evaluate", "loader_workers", "report_to", "shape")
"""Fields that may differ when a run is gone on with: they change no weight beyond rounding."""


def recipes() -> tuple[str, ...]:
    """Return the names of the shipped recipes."""
    return tuple(name.removesuffix(RECIPE_SUFFIX) for name in open_storage(RECIPES).listing())


def recipe_fields(name: str) -> dict[str, Any]:
    """Return what a recipe sets; ``name`` is a shipped one's or a path.

    Raises:
        TrainingError: there is no such recipe, or it is no list of settings.
    """
    path = RECIPES / f"{name}{RECIPE_SUFFIX}" if name in recipes() else Path(name)
    if not path.exists():
        raise TrainingError(f"no recipe {name!r}, expected a file or one of: {', '.join(recipes())}")
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())  # of YAML it has lines
        raise TrainingError(f"recipe {name} cannot be read: {why}; expected lines such as `lr: 2.0e-6`") from error
    if not isinstance(fields, dict):
        raise TrainingError(f"recipe {name} holds a {type(fields).__name__}, expected settings such as `lr: 2.0e-6`")
    return fields


def make_sft_config(fields: dict[str, Any]) -> SftConfig:
    """Check the settings of a run of Stage I and complete them with their defaults.

    Raises:
        TrainingError: a setting is unknown, missing, or cannot be used.
    """
    return _checked(SftConfig, fields)


def make_rl_config(fields: dict[str, Any]) -> RlConfig:
    """Check the settings of a run of Stage II; see :func:`make_sft_config`."""
    return _checked(RlConfig, fields)


def _checked(kind: type[AnyConfig], fields: dict[str, Any]) -> AnyConfig:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise TrainingError(explain(error, "training setting ", kind)) from error


def differing_fields(old: dict[str, Any], new: Settings, free: Sequence[str] = NOT_RESULTS) -> list[str]:
    """Name the settings in which a run that is gone on with differs from the one in ``run.json``, but for ``free``.

    A setting that an older version had not heard of is what it was if it has its default.
    """
    now, defaults = json.loads(new.model_dump_json()), type(new).model_fields
    unheard = {name for name in now if name not in old and getattr(new, name) == defaults[name].get_default()}
    return [name for name in now if name not in {*free, *unheard} and old.get(name) != now[name]]
