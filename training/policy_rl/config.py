"""Config of Stage II: every setting of ``pivot train rl``. Defaults are the paper's where it gives them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ...core import plugins
from ...core.plugins import Settings
from ...labeling.base import GuidanceSource
from ...labeling.target import Vocabulary
from ...solvers.credit import RULES
from ..config import Precision, Schedule, Shape, checked, fields_marked, recipe_fields, setting
from .hindsight.contexts import ARMS, DEFAULT_ARM, arm_of

PAPER_UPDATES = {"sokoban": 350}
PAPER_PROMPTS = {"navigation": 8}
"""Values of single environments in the paper; the others have 250 updates of 16 tasks."""
RECIPES = Path(__file__).with_name("recipes")
PLAY = "How much it plays"
LEARNING = "How it learns"
MEMORY = "Memory and speed (results change by rounding alone)"
REPORTS = "Validation, checkpoints and reports"
CHECKS = "Checks"
_GROUPS = {"arm": "arms", "opd_objective": "objectives", "advantages": "advantages", "engine": "generators"}
"""Groups of the plugins that fields name."""


class RlConfig(Settings):
    """A run of Stage II: GRPO with gated self-distillation on one environment."""

    env: str
    """Environment to train on, such as ``sokoban``."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment, such as ``{"horizon": 2}``."""
    model: str
    """Model to start from: a ``save_pretrained`` folder, or a hub id; each arm names the kind it is meant to start
    from."""
    revision: str | None = None
    """Revision of the model on the hub."""
    chat_template_kwargs: dict[str, Any] = setting(added=True, default_factory=dict)
    """Arguments of the chat template, such as ``enable_thinking=false``."""
    arm: str = Field(default=DEFAULT_ARM, description=f"Hindsight in the Teacher's prompt, one of: {', '.join(ARMS)}.")
    teacher_model: str | None = None
    """Frozen Teacher: a folder or a hub id. The arm ``sdar`` needs one, a larger model; the other arms with a Teacher
    may use one, such as a Stage I checkpoint, in place of the trained weights."""
    teacher_revision: str | None = None
    """Revision of the frozen Teacher on the hub."""
    teacher_weights: Literal["live", "start", "ema"] = setting("live", panel=LEARNING, added=True)
    """Weights of a Teacher without ``teacher_model``: ``live`` are the Student's, as in the paper; ``start`` those of
    the start of the run; ``ema`` the exponential moving average of the Student's."""
    teacher_decay: float = setting(0.99, panel=LEARNING, added=True, ge=0, lt=1)
    """Decay of the moving average per update; used with ``teacher_weights`` ``ema``."""
    updates: int = setting(0, panel=PLAY, by_rounding=True, ge=0)
    """Updates in total; 0 for the paper's number: 250, or 350 in Sokoban."""
    prompts: int = setting(0, panel=PLAY, ge=0)
    """Tasks per update; 0 for the paper's number: 16, or 8 in Navigation."""
    rollouts: int = setting(8, panel=PLAY, ge=2)
    """Episodes per task and update; advantages compare them with each other."""
    levels: int = setting(0, panel=PLAY, ge=0)
    """Number of different tasks, held-out ones included; 0 for the paper's."""
    held_out: float = setting(0.1, panel=PLAY, gt=0, lt=1)
    """Share of the levels that is held out for validation."""
    lr: float = setting(1e-6, panel=LEARNING, gt=0)
    """Peak learning rate of AdamW."""
    schedule: Schedule = setting("constant", panel=LEARNING, added=True)
    """Shape of the learning rate after its warm-up."""
    warmup: int = setting(0, panel=LEARNING, added=True, ge=0)
    """Updates in which the learning rate rises to its peak."""
    weight_decay: float = setting(0.0, panel=LEARNING, ge=0)
    """Weight decay of AdamW."""
    adam_epsilon: float = setting(1e-8, panel=LEARNING, added=True, gt=0)
    """Epsilon of AdamW. A larger one, such as 1e-5, prevents drift of weights with near-zero gradients in a
    small model."""
    max_grad_norm: float = setting(1.0, panel=LEARNING, gt=0)
    """Largest L2 norm of the gradient; a larger gradient is scaled down to it."""
    minibatch: int = setting(64, panel=LEARNING, ge=1)
    """Turns of episodes per optimiser step."""
    lora: bool = setting(False, panel=LEARNING)
    """Train low-rank adapters of the language model: the model without them is the reference, so no second copy of the
    weights is kept, and a server swaps adapters while it runs."""
    lora_rank: int = setting(64, panel=LEARNING, ge=1)
    """Rank of the adapters; used with ``lora``."""
    lora_alpha: int = setting(128, panel=LEARNING, ge=1)
    """Scale of the adapters: their output is multiplied by ``lora_alpha`` over ``lora_rank``; used with ``lora``."""
    micro_batch_tokens: int = setting(16_384, panel=MEMORY, by_rounding=True, ge=1)
    """Tokens, padding included, that one process holds in memory at a time; results change by rounding alone."""
    gamma: float = setting(1.0, panel=LEARNING, gt=0, le=1)
    """Discount per turn of the return that advantages are computed from; the paper's 0.95 cannot produce the returns it
    reports."""
    invalid_penalty: float = setting(0.1, panel=LEARNING, ge=0)
    """Reward subtracted in training for each reply that breaks the format; the logged return does not include it."""
    credit: str | None = setting(None, panel=LEARNING, added=True)
    """Rule of a credit per turn that is added to the advantage of the episode (an extension): ``progress``, ``slack``
    or ``pivot``, see ``pivot.credit``. Needs an environment with an exact solver. No gain of any rule is proved; the
    docs on exports say what is known."""
    credit_weight: float = setting(1.0, panel=LEARNING, added=True, gt=0)
    """Weight of the credit, after it is scaled to a deviation of 1 over the turns of a task's episodes."""
    clip: float = setting(0.2, panel=LEARNING, gt=0, lt=1)
    """Clipping range of the policy ratio: between ``1 - clip`` and ``1 + clip``."""
    clip_high: float | None = setting(None, panel=LEARNING, added=True, gt=0)
    """Clipping range of the policy ratio upwards (clip-higher); by default that of
    ``clip``."""
    advantages: str = setting("grpo", panel=LEARNING, added=True)
    """Estimator of the advantages: ``grpo``, or an installed one of the group ``pivot.advantages``."""
    advantages_set: dict[str, Any] = setting(panel=LEARNING, added=True, default_factory=dict)
    """Settings of the estimator."""
    kl: float = setting(0.01, panel=LEARNING, ge=0)
    """Weight of the KL divergence from the weights that the run starts from; 0 keeps no copy of them."""
    opd: float = setting(0.01, panel=LEARNING, ge=0)
    """Weight of the distillation loss, the paper's lambda_opd."""
    beta: float = setting(5.0, panel=LEARNING, ge=0)
    """Slope of the distillation gate per nat, the paper's beta_opd."""
    opd_objective: str = setting("printed", panel=LEARNING)
    """Distillation loss: ``printed`` is the paper's; ``centred``, ``gap`` and ``distribution`` are extensions that also
    lower the probability of tokens that the Teacher finds unlikely. ``distribution`` is the KL divergence from the
    Teacher's distribution in place of the sampled token."""
    objective_set: dict[str, Any] = setting(panel=LEARNING, added=True, default_factory=dict)
    """Settings of the distillation loss, if an installed one of the group ``pivot.objectives`` has any."""
    opd_candidates: int = setting(20, panel=LEARNING, added=True, ge=1)
    """Most likely tokens of the Teacher at each token, from which the objective ``distribution`` computes the
    divergence; all others are one class."""
    opd_scope: Literal["all", "pivot"] = setting("all", panel=LEARNING)
    """Distilled tokens of a failed episode: all of them, or only those of the pivot step (an extension). The scope
    ``pivot`` with the objective ``printed`` is refused: an informed Teacher finds the pivot's action unlikely, so its
    gate is near 0 there, and nothing is learned."""
    correction: float = setting(0.1, panel=LEARNING, added=True, ge=0)
    """Weight of the loss of certified corrections in the arms ``witness`` and ``dpo_pivot``, which are extensions."""
    correction_step: Literal["pivot", "random", "start", "first-mistake", "largest-loss", "all"] = setting(
        "pivot", panel=LEARNING, added=True
    )
    """Step of a failure that these arms correct: the solver's pivot; a random other step where the agent took no action
    of a shortest plan; the first step; or a mistake, a turn after which the goal is further away or out of reach: the
    first one, the one that lost most turns, or all of them."""
    dpo_beta: float = setting(0.1, panel=LEARNING, added=True, gt=0)
    """Strength of the pull towards the weights of the start in the arm ``dpo_pivot``; with ``kl`` 0, towards the
    weights before the update."""
    max_tokens: int = setting(512, panel=PLAY, ge=1)
    """Longest reply of the Student in tokens, up to the model's context."""
    analyzer_tokens: int = setting(512, panel=PLAY, ge=1)
    """Longest reply of the Analyzer in tokens."""
    target_vocabulary: Vocabulary = setting("certificate", panel=LEARNING)
    """Names of failure modes in the prompts of Analyzer and Teacher: the certificate's or the paper's, as in
    Stage I."""
    guidance: GuidanceSource = "facts"
    """Guidance of the Analyzer that the Teacher's prompt shows: ``facts`` leaves out a text with a sentence that the
    environment does not render from facts; ``prose`` shows whatever the Analyzer wrote."""
    engine: str = setting("in-process", panel=MEMORY)
    """Generation engine: ``in-process`` for the trained module itself, ``vllm`` for a vLLM server that the run starts,
    or an installed engine of the group ``pivot.generators``."""
    server_command: str = setting("python -m vllm.entrypoints.openai.api_server", panel=MEMORY, by_rounding=True)
    """Command that starts a vLLM server, with options such as ``--dtype bfloat16``; the run adds model, served name,
    address and the mode of log-probabilities. ``env CUDA_VISIBLE_DEVICES=1`` in front of it chooses the GPU. Used by
    the engine ``vllm``."""
    generate: int = setting(32, panel=MEMORY, ge=1)
    """Replies generated together; which replies share a batch affects rounding, so a resumed run keeps it."""
    precision: Precision = setting("auto", panel=MEMORY)
    """Precision of the computation: ``bf16`` computes in bfloat16 over float32 weights; ``auto`` is bf16 on a GPU, fp32
    elsewhere."""
    gradient_checkpointing: bool = setting(False, panel=MEMORY)
    """Recompute activations in the backward pass: a third more time, a fraction of the memory."""
    seed: int = setting(0, panel=PLAY, ge=0, lt=2**31)
    """Seed of levels, replies and minibatches."""
    validate_every: int = setting(25, panel=REPORTS, ge=0)
    """Updates between validations; 0 validates only before the first update and after the last one."""
    validation_episodes: int = setting(128, panel=REPORTS, ge=0)
    """Episodes per validation, on held-out levels; 0 for no validation."""
    validation_temperature: float = setting(0.4, panel=REPORTS, ge=0, le=2)
    """Sampling temperature of validation episodes."""
    save_every: int = setting(25, panel=REPORTS, by_rounding=True, ge=1)
    """Updates between checkpoints."""
    keep_rollouts: int = setting(1, panel=REPORTS, by_rounding=True, ge=0)
    """Updates between stored rollouts: 1 stores those of every update, 0 stores none."""
    report_to: tuple[str, ...] = setting((), panel=REPORTS, by_rounding=True)
    """Experiment trackers, such as ``wandb``, ``trackio`` or ``tensorboard``."""
    shape: Shape | None = setting(None, panel=CHECKS, by_rounding=True)
    """Architecture of the model, for ``dry_run`` where the model cannot be loaded; recipes set it."""

    # Settings of one call; not part of the stored config.

    out: Path | None = Field(default=None, exclude=True)
    """Folder of checkpoints and results: an empty one, or that of the run to resume."""
    resume: bool = Field(default=False, exclude=True)
    """Resume from the last complete checkpoint in ``out``."""
    recipe: str | None = Field(default=None, exclude=True)
    """Recipe whose settings are the defaults of this run: the name of a shipped one, or a YAML file."""
    dry_run: bool = setting(False, panel=CHECKS, exclude=True)
    """Estimate the memory of one process, and stop before anything is read or written."""

    @model_validator(mode="before")
    @classmethod
    def _paper_sizes(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        if isinstance(fields.get("recipe"), str):
            fields = recipe_fields(fields["recipe"], RECIPES) | fields
        env = str(fields.get("env"))
        return fields | {
            "updates": fields.get("updates") or PAPER_UPDATES.get(env, 250),
            "prompts": fields.get("prompts") or PAPER_PROMPTS.get(env, 16),
        }

    @field_validator(*_GROUPS)
    @classmethod
    def _is_registered(cls, name: str, info: ValidationInfo) -> str:
        names = list(plugins.names(_GROUPS[str(info.field_name)]))
        if info.field_name == "engine":
            names = [each.replace("_", "-") for each in names]
        if name not in names:
            raise ValueError(f"found {name!r}, expected one of: {', '.join(names)}")
        return name

    @field_validator("credit")
    @classmethod
    def _is_a_rule(cls, name: str | None) -> str | None:
        if name is not None and name not in RULES:
            raise ValueError(f"found {name!r}, expected one of: {', '.join(RULES)}")
        return name

    @model_validator(mode="after")
    def _fits_the_arm(self) -> "RlConfig":
        if self.credit is not None and self.advantages != "grpo":
            raise ValueError(
                f"credit {self.credit!r}: found advantages {self.advantages!r}, too, expected grpo: credit is added to "
                "its advantages"
            )
        analyzer = arm_of(self.arm).analyzer
        if analyzer == "frozen" and self.teacher_model is None:
            raise ValueError(f"arm {self.arm}: found no Teacher, expected a frozen larger model (--teacher-model)")
        if self.teacher_model is not None and not arm_of(self.arm).distils:
            raise ValueError(f"arm {self.arm}: found a --teacher-model, expected none: nothing is distilled")
        if self.teacher_model is not None and self.teacher_weights != "live":
            raise ValueError(
                f"teacher_weights {self.teacher_weights!r}: found a --teacher-model, too, expected one of them"
            )
        if self.teacher_decay != type(self).model_fields["teacher_decay"].default and self.teacher_weights != "ema":
            raise ValueError(
                f"teacher_decay {self.teacher_decay:g}: found teacher_weights {self.teacher_weights!r}, expected 'ema'"
            )
        if self.correction_step != "pivot" and arm_of(self.arm).corrects is None:
            raise ValueError(
                f"correction_step {self.correction_step!r}: arm {self.arm} corrects nothing, expected arm witness or "
                "dpo_pivot"
            )
        if self.opd_scope == "pivot" and analyzer not in ("model", "solver"):
            raise ValueError(f"opd_scope 'pivot': arm {self.arm} names no step, expected scope 'all'")
        return self


NOT_RESULTS = fields_marked(RlConfig, "by_rounding")
"""Fields that change weights by rounding alone."""
MAY_CHANGE = tuple(name for name in NOT_RESULTS if name != "keep_rollouts")
"""Fields that may differ when a run is resumed; ``keep_rollouts`` may not, because it numbers the stored shards."""
ADDED = fields_marked(RlConfig, "added")


def may_change(config: RlConfig) -> tuple[str, ...]:
    """Return the fields that may differ when a run is resumed; a falling learning rate depends on ``updates``."""
    return MAY_CHANGE if config.schedule == "constant" else tuple(name for name in MAY_CHANGE if name != "updates")


def settings_of_episodes(config: RlConfig) -> dict[str, Any]:
    """Return the settings that decide the episodes of a run, from which their ids are derived."""
    fields = type(config).model_fields
    defaults = {name for name in ADDED if getattr(config, name) == fields[name].get_default(call_default_factory=True)}
    return config.model_dump(mode="json", exclude={*NOT_RESULTS, *defaults})


def make_rl_config(fields: Mapping[str, Any]) -> RlConfig:
    """Check the settings of a run of Stage II and complete them with their defaults.

    Raises:
        TrainingError: a setting is unknown, missing, or cannot be used.
    """
    return checked(RlConfig, fields)
