"""Evaluation of a policy: the Student alone plays held-out levels at the validation temperature."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import TrainingError
from ...core.identity import digest
from ...core.storage import Storage, open_storage
from ...models.extras import need
from ...models.transformers.model import Engine
from ...models.weights import is_local, revision_of
from ...rollouts.policies import ModelPolicy
from ..checkpoint import BEST, FINAL, stored_run
from ..config import EXTRA
from ..encode import Encoder
from ..loading import load_weights, uses_bf16
from ..policy_rl.config import RlConfig, make_rl_config
from ..policy_rl.engines.base import GenerationOptions
from ..policy_rl.engines.in_process import InProcessBackend
from ..policy_rl.levels import Played, measure, plan_levels, without_seen
from ..ranks import Ranks
from .config import POLICY_RESULT, PolicyEvaluationConfig

torch: Any = need("torch", EXTRA)


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """Success of a policy on held-out levels, with the settings of the measurement."""

    played: Played
    config: RlConfig
    model: str
    levels: int
    """Number of different levels that the figures are about."""
    levels_digest: str
    """Digest of these levels: equal for policies that played the same levels."""
    trained_on: int = 0
    """Held-out levels of these settings that were not played because the run was trained on them."""

    def row(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        config = self.config
        return {
            "env": config.env,
            "settings": config.settings,
            "arm": config.arm,
            "model": self.model,
            "temperature": config.validation_temperature,
            "levels": self.levels,
            "levels_digest": self.levels_digest,
            "seed": config.seed,
            **self.played.row(),
        }


def checkpoint_of(folder: Path, name: str = FINAL) -> str:
    """Return the folder of a checkpoint of a run.

    Raises:
        TrainingError: the run has no checkpoint of this name.
    """
    storage: Storage = open_storage(folder)
    if storage.stat(f"{name}/config.json") is None:
        if name == BEST and storage.stat(f"{FINAL}/config.json") is not None:
            raise TrainingError(
                f"{folder} holds no checkpoint 'best': no validation was better than the one before the first update, "
                "or none was made; take --checkpoint final"
            )
        raise TrainingError(
            f"{folder} holds no checkpoint {name!r}, expected a finished run of pivot train rl; finish it with "
            "--resume, or name another with --checkpoint"
        )
    return str(folder / name)


def evaluate_policy(config: PolicyEvaluationConfig, report: Callable[[str], None]) -> PolicyResult:
    """Measure how often a policy succeeds on held-out levels, as the config says; write ``OUT/evaluation/policy.json``.

    Args:
        config: every setting of the evaluation.
        report: receives one line before the episodes are played.

    Raises:
        TrainingError: the policy, the levels or the folder cannot be used, or no episode could be finished.
        PluginError, ConfigError, GenerationError: the environment cannot be used.
    """
    folder = Path(config.model)
    is_folder = open_storage(folder).exists()
    record = stored_run(folder) if is_folder else {}
    run = make_rl_config(record["config"]) if record.get("stage") == "rl" else None
    target = config.out or (folder if is_folder else None)
    if target is None:
        raise TrainingError(f"{config.model} is not a folder that the result could go to; name one with --out DIR")
    episodes = episode_config(config, run)
    weights = config.model if run is None else checkpoint_of(folder, config.checkpoint)
    report(f"playing {episodes.validation_episodes} episodes of {episodes.env} …")
    revision = episodes.revision if weights == episodes.model else None
    held_out, ranks = plan_levels(episodes), Ranks.current()
    levels = held_out if run is None else without_seen(held_out, plan_levels(run))
    loaded, processor = load_weights(weights, revision, torch.float32)
    loaded.to(ranks.device).eval()
    encoder = Encoder(processor, episodes.chat_template_kwargs)
    engine = Engine(loaded, processor, encoder.placeholders)
    options = GenerationOptions(
        model=weights if not is_local(weights) else "local",
        revision=revision_of(weights, revision),
        run=f"evaluation-{episodes.seed}",
        max_tokens=episodes.max_tokens,
        temperature=episodes.validation_temperature,
        chat_template_kwargs=episodes.chat_template_kwargs,
    )
    half = uses_bf16(episodes.precision)
    policy = ModelPolicy(InProcessBackend(options, engine, batch=episodes.generate, half=half))
    played = measure(levels, policy, episodes.validation_episodes, ranks)
    left_out = len(held_out.validation) - len(levels.validation)
    count, states = len(played.levels), digest(played.levels, length=16)
    result = PolicyResult(played, episodes, weights, count, states, left_out)
    open_storage(target).write_json(POLICY_RESULT, result.row())
    return result


def episode_config(config: PolicyEvaluationConfig, run: RlConfig | None) -> RlConfig:
    """Return the settings of the episodes: the run's, if the policy comes from one, under those of the evaluation.

    Raises:
        TrainingError: neither names an environment, or a setting cannot be used.
    """
    fields: dict[str, Any] = {} if run is None else run.model_dump(mode="json")
    env = config.env or fields.get("env")
    if env is None:
        raise TrainingError(
            f"{config.model} is not a run of pivot train rl, so it names no environment; name it with --env"
        )
    if run is not None and env != run.env:
        fields |= {"env": env, "settings": {}, "levels": 0}
    changes = {
        "env": env,
        "settings": {**fields.get("settings", {}), **config.settings} or None,
        "validation_episodes": config.episodes,
        "validation_temperature": config.temperature,
        "max_tokens": config.max_tokens,
        "levels": config.levels,
        "seed": config.seed,
        "prompts": 1,
        "model": fields.get("model", config.model),
    }
    return make_rl_config(fields | {name: value for name, value in changes.items() if value is not None})
