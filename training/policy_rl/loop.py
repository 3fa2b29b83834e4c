"""A run of Stage II from its config to its final folder: roll out, analyze, score, update.

An update is a function of the config, its number and the weights before it, so that a killed run resumes from its last
complete checkpoint and makes the same updates. Each of several processes plays, analyzes, scores and differentiates its
share; all of them hold the same weights.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from ...core.errors import TrainingError
from ...core.identity import digest
from ...core.storage import Storage, open_storage
from ...models.base import Backend
from ...models.extras import installed, need
from ...models.transformers.model import Engine
from ...models.weights import revision_of
from ...rollouts.policies import ModelPolicy
from .. import checkpoint as on_disk
from ..config import EXTRA
from ..curves import draw_curves
from ..encode import Encoder
from ..loading import (
    add_adapters,
    load_adapters,
    load_weights,
    merged,
    recompute_activations,
    uses_bf16,
    without_adapters,
)
from ..memory import Estimate
from ..ranks import Ranks
from ..trackers import Trackers, check_trackers
from .advantages import check_exact, group
from .config import RlConfig, may_change, settings_of_episodes
from .engines.base import GenerationOptions, Generator, Trained, generator_type
from .extensions.advantages import estimator_of
from .extensions.objectives import objective_of
from .figures import Clock, Line, Update, cost_figures, teacher_warning, update_figures
from .generation import TrainedEngine
from .hindsight.analysis import analyze, check_same_tokens, make_samples
from .hindsight.contexts import arm_of
from .hindsight.corrections import with_corrections
from .journal import SAMPLES, append, cut_samples, policy_card, progress, sample_text
from .learner import Learner, score_turns
from .levels import Levels, first_turns, measure, plan_levels, roll_out
from .rollout_store import PlayedStore
from .scoring import Scorer, Teacher
from .weights import CACHE_BYTES, ByteCache, ModelWeights, MovingAverage, VisionCache, has_frozen_vision

torch: Any = need("torch", EXTRA)

OPTIMIZER = "optimizer.pt"
Report = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """Config, levels and models of a run, read and checked before the first update."""

    config: RlConfig
    levels: Levels
    model: Any
    encoder: Encoder
    ranks: Ranks
    frozen: tuple[Any, Encoder] | None = None
    """Frozen Teacher of the arms that have one."""


@dataclass(frozen=True, slots=True)
class RlResult:
    """Result of a run."""

    folder: str
    updates: int
    last: Line
    """Last line of ``metrics.jsonl``."""
    already_complete: bool = False
    """Whether the run was complete before this call."""
    memory: Estimate | None = None
    """Memory estimate of a dry run."""


def prepare(config: RlConfig) -> Prepared:
    """Sample the levels and load the models; nothing is written.

    Raises:
        TrainingError: a model or a setting cannot be used.
        PluginError, ConfigError, GenerationError: the environment cannot be used.
    """
    if config.opd_scope == "pivot" and config.opd_objective == "printed":
        raise TrainingError(
            "opd_scope 'pivot': found the objective 'printed', whose gate is near 0 at the pivot, expected 'centred' "
            "or 'gap'; set --opd-objective"
        )
    check_trackers(config.report_to)
    check_exact(config)
    generator_type(config.engine)  # refuse an invalid engine before hours of work
    if config.keep_rollouts and not installed("pyarrow"):
        raise TrainingError(
            f"keep_rollouts {config.keep_rollouts}: found no package pyarrow, expected it to store rollouts; install "
            "it, or store none with --keep-rollouts 0"
        )
    levels, ranks = plan_levels(config), Ranks.current()
    precision = torch.bfloat16 if uses_bf16(config.precision) else torch.float32
    model, processor = load_weights(config.model, config.revision, precision if config.lora else torch.float32)
    context = model.config.get_text_config().max_position_embeddings
    if max(config.max_tokens, config.analyzer_tokens) > context:
        raise TrainingError(
            f"found replies of up to {max(config.max_tokens, config.analyzer_tokens)} tokens, expected at most the "
            f"{context} of the model's context; lower --max-tokens and --analyzer-tokens"
        )
    if config.lora:
        add_adapters(model, config.lora_rank, config.lora_alpha, config.seed)
    model.to(ranks.device)
    if config.gradient_checkpointing:
        recompute_activations(model)
    encoder, frozen = Encoder(processor, config.chat_template_kwargs), None
    if config.teacher_model is not None:
        larger, its_processor = load_weights(config.teacher_model, config.teacher_revision, precision)
        its_encoder = Encoder(its_processor, config.chat_template_kwargs)
        frozen = larger.to(ranks.device).eval().requires_grad_(False), its_encoder
        check_same_tokens(encoder, frozen[1])
    return Prepared(config, levels, model.eval(), encoder, ranks, frozen)


def run_record(prepared: Prepared) -> dict[str, Any]:
    """Return the content of ``run.json``."""
    config = prepared.config
    return {
        "stage": "rl",
        "config": config.model_dump(mode="json"),
        "versions": on_disk.training_versions(),
        "model_revision": revision_of(config.model, config.revision),
        "levels": {"train": len(prepared.levels.train), "validation": len(prepared.levels.validation)},
    }


def train(prepared: Prepared, out: Path, *, resume: bool = False, report: Report = lambda _: None) -> RlResult:
    """Train, or resume a run that was stopped at any moment.

    Args:
        prepared: result of :func:`prepare`; its model is trained in place.
        out: folder of the run; empty unless ``resume``.
        resume: resume from the last complete checkpoint.
        report: receives one line per update, in the main process alone.

    Raises:
        TrainingError: ``out`` holds something else or more updates, or a gradient is not finite.
    """
    storage, config = open_storage(out), prepared.config
    on_disk.check_run(storage, run_record(prepared), config, may_change(config), resume=resume)
    last = on_disk.read_metrics(storage)[-1:] if resume else []
    if last and last[0]["step"] >= config.updates and storage.stat(f"{on_disk.FINAL}/config.json") is not None:
        return RlResult(str(out), config.updates, last[0], already_complete=True)
    start = on_disk.last_checkpoint(storage, config.updates) if resume else None
    is_main = prepared.ranks.is_main
    prepared.ranks.wait()
    with storage.lock() if is_main else nullcontext():
        if is_main:
            storage.delete(on_disk.FINAL)  # left by a run with fewer updates
            on_disk.clear_torn(storage, start)
            on_disk.cut_metrics(storage, 0 if start is None else start.step)
            cut_samples(storage, 0 if start is None else start.step)
            storage.write_json(on_disk.RUN, run_record(prepared))
        run = Run(prepared, storage, start, report if is_main else lambda _: None)
        try:
            return run.go()
        finally:  # the server ends with the run, also after an error
            run.generator.close()
            run.trackers.close()


class Run:
    """The state of one :func:`train`."""

    def __init__(self, prepared: Prepared, storage: Storage, start: on_disk.Checkpoint | None, report: Report) -> None:
        """Prepare the updates after ``start`` in the folder of ``storage``."""
        self.config, self.levels, self.ranks = prepared.config, prepared.levels, prepared.ranks
        self.storage, self.report = storage, report
        self.encoder, self.model = prepared.encoder, prepared.model
        self.done = 0 if start is None else start.step
        if start is not None:
            self._load(storage.local_path(start.folder))
        self.half = uses_bf16(self.config.precision)
        self.scorer = Scorer(self.encoder, half=self.half)
        # Of a vision encoder that is not trained, all weights and phases share the encoded pictures.
        features = ByteCache(CACHE_BYTES) if has_frozen_vision(self.model) else None
        self.weights = ModelWeights(self.model, features=features)
        pictures = None if features is None else self.weights.vision_cache()
        self.engine = TrainedEngine(self.model, self.scorer, pictures)
        self.frozen: Teacher | None = None
        self.writer: Engine | None = None
        if prepared.frozen is not None:
            larger, its_encoder = prepared.frozen
            self.frozen = Teacher(Scorer(its_encoder, half=self.half), VisionCache(larger))
            if arm_of(self.config.arm).analyzer == "frozen":
                self.writer = Engine(larger, its_encoder.processor, its_encoder.placeholders)
        self.reference = self._start_weights() if self.config.kl > 0 else None
        self.objective, self.estimator = objective_of(self.config), estimator_of(self.config)
        self.learner = Learner(self.model, self.scorer, self.config, self.objective, self.ranks, pictures)
        if start is not None:
            saved = storage.local_path(f"{start.folder}/{OPTIMIZER}")
            self.learner.optimizer.load_state_dict(torch.load(saved, map_location=self.model.device, weights_only=True))
        self.average: MovingAverage | None = None
        self.teacher_weights: ModelWeights | None = None
        if self.config.teacher_weights == "start":
            self.teacher_weights = self.reference or self._start_weights()
        elif self.config.teacher_weights == "ema":
            self.average = MovingAverage(self.model, self.learner.optimizer, self.config.teacher_decay)
            self.teacher_weights = ModelWeights(self.model, self.average.around, features)
        turns, folder = partial(first_turns, self.levels), storage.local_path()
        self.generator: Generator = generator_type(self.config.engine)(
            Trained(self.config, self.model, self.engine, self.scorer, turns, folder, self.ranks)
        )
        self.synced: int | None = None
        """Number of updates of the generator's weights."""
        self.sync_difference: float | None = None
        revision = revision_of(self.config.model, self.config.revision)
        self.run_id = digest([settings_of_episodes(self.config), revision], 16)
        self.warned = False
        """Whether the report of a Teacher that is not informed was made."""
        first = ModelPolicy(self._backend(max(1, self.config.keep_rollouts) - 1, max_tokens=self.config.max_tokens))
        self.played = PlayedStore(storage.local_path(), self.levels, self.config, first.config)
        if self.ranks.is_main:
            self.played.remove_after(self.done)
        self.trackers = Trackers(folder, self.config.report_to)

    def _start_weights(self) -> ModelWeights:
        """Return the weights that the run started from."""
        if self.config.lora:
            return ModelWeights(self.model, partial(without_adapters, self.model), self.weights.features)
        copy, _ = load_weights(self.config.model, self.config.revision, torch.float32)
        copy.to(self.model.device).eval().requires_grad_(False)
        return ModelWeights(copy)

    def _load(self, folder: Path) -> None:
        """Load the weights of a checkpoint."""
        if self.config.lora:
            load_adapters(self.model, folder)
        else:
            saved, _ = load_weights(str(folder), None, torch.float32)
            self.model.load_state_dict(saved.state_dict())

    def go(self) -> RlResult:
        """Make the remaining updates and the final folder."""
        config, started = self.config, perf_counter()
        if self.done == 0 and config.validation_episodes:
            self._write({"step": 0, **self._validate(0)})
        for number in range(self.done + 1, config.updates + 1):
            line = self.update(number)
            if config.validation_episodes and self._is_due(number, config.validate_every):
                line |= self._validate(number)
            self._write(line)
            left = (perf_counter() - started) / (number - self.done) * (config.updates - number)
            self.report(progress(line, config.updates, left))
            self._warn_of_teacher(line)
            if self._is_due(number, config.save_every):
                self._save(number)
        if self.ranks.is_main:
            self._save_final(on_disk.FINAL)
        self.ranks.wait()
        last = on_disk.read_metrics(self.storage)[-1]
        return RlResult(str(self.storage.local_path()), last["step"], last)

    def _is_due(self, number: int, every: int) -> bool:
        return number == self.config.updates or (every > 0 and number % every == 0)

    def _warn_of_teacher(self, line: Line) -> None:
        """Report once that the Teacher does not tell the pivot's action from others."""
        message = None if self.warned or not arm_of(self.config.arm).shows else teacher_warning(line)
        if message is not None:
            self.warned = True
            self.report(message)

    # One update

    def update(self, number: int) -> Line:
        """Make one update and return its line of metrics."""
        config, levels, clock = self.config, self.levels, Clock()
        if self.generator.copies_weights:
            with clock.phase("sync"):
                self._sync(number - 1)
        with clock.phase("rollout"):
            policy = ModelPolicy(self._backend(number - 1, max_tokens=config.max_tokens))
            tasks = [levels.train[index] for index in levels.sample(number, config)]
            run_id = self.played.run_id(policy.config)
            rollouts = roll_out(levels, tasks, policy, config.rollouts, self.ranks, run_id)
            groups = group(rollouts, config)
        with clock.phase("analyze"):
            backend = self._backend(number - 1, max_tokens=config.analyzer_tokens)
            failures = analyze(rollouts, levels, config, backend, self.ranks, self.writer)
            estimates = self.estimator.advantages(rollouts, groups.advantages, config)
            decode = self.encoder.tokenizer.decode
            samples = make_samples(rollouts, groups, failures, levels, config, decode, estimates)
            samples = with_corrections(samples, rollouts, failures, levels, config, self.encoder)
            made = Update(rollouts, groups, failures, samples)
        with clock.phase("score"):
            self.scorer.pictures = dict(samples.pictures)
            if self.frozen is not None:
                self.frozen.scorer.pictures = dict(samples.pictures)
            models = self.scorer, self.weights, self.reference
            rest = config, self.frozen, self.teacher_weights, self.objective, self.ranks
            scored = score_turns(samples.turns, *models, *rest)
        with clock.phase("update"):
            measured = self.learner.update(scored, number)
            if self.average is not None:
                self.average.update()
        if self.ranks.is_main:
            self.played.store(number, made.rollouts)
            append(self.storage, SAMPLES, sample_text(number, config.env, made))
        figures = update_figures(made, scored, config.beta)
        return {
            "step": number,
            **figures,
            "sequence_tokens": sum(self.scorer.length(each.turn.student) for each in scored),
            **measured,
            **cost_figures(figures["tokens"], clock.seconds),
            "sync_difference": self.sync_difference,
            "seconds": clock.seconds,
        }

    def _sync(self, updates: int) -> None:
        """Renew the generator's copy of the weights, if it has one that is older."""
        if self.generator.copies_weights and self.synced != updates:
            self.sync_difference = self.generator.sync(self._save_model)
            self.synced = updates

    def _backend(self, updates: int, *, max_tokens: int, temperature: float | None = None) -> Backend:
        config = self.config
        options = GenerationOptions(
            model=config.model,
            revision=config.revision,
            run=self.run_id,
            update=updates,
            max_tokens=max_tokens,
            temperature=temperature,
            chat_template_kwargs=config.chat_template_kwargs,
        )
        return self.generator.backend(options)

    def _validate(self, number: int) -> Line:
        """Play held-out levels as the Student alone; keep the weights if they are the best so far."""
        config, started = self.config, perf_counter()
        self._sync(number)
        temperature = config.validation_temperature
        policy = ModelPolicy(self._backend(number, max_tokens=config.max_tokens, temperature=temperature))
        played = measure(self.levels, policy, config.validation_episodes, self.ranks)
        if self.ranks.is_main and number:
            lines = on_disk.read_metrics(self.storage)
            earlier = [line["validation"]["success"]["value"] for line in lines if "validation" in line]
            if played.success.value > max(earlier, default=-1.0):
                self._save_final(on_disk.BEST, played.success.row())
        return {"validation": played.row() | {"seconds": round(perf_counter() - started, 3)}}

    # Files of the run

    def _write(self, line: Line) -> None:
        if self.ranks.is_main:
            append(self.storage, on_disk.METRICS, json.dumps(line) + "\n")
        self.trackers.log(line)

    def _save(self, number: int) -> None:
        if self.ranks.is_main:
            where = self.storage.local_path(on_disk.Checkpoint(number).folder)
            self._save_model(str(where))
            with on_disk.writing(where):
                torch.save(self.learner.optimizer.state_dict(), where / OPTIMIZER)
            on_disk.seal(self.storage, number)
            on_disk.clear_old(self.storage)
            draw_curves(self.storage, f"Stage II: {self.config.env}, arm {self.config.arm}")
        self.ranks.wait()

    @contextmanager
    def _own_defaults(self) -> Iterator[None]:
        """Restore the sampling defaults of the checkpoint while the model is saved."""
        engine_defaults, self.model.generation_config = self.model.generation_config, self.engine.own_defaults
        try:
            yield
        finally:
            self.model.generation_config = engine_defaults

    def _save_model(self, where: str) -> None:
        with on_disk.writing(where):
            with self._own_defaults():
                self.model.save_pretrained(where)
            for file, content in on_disk.further_files(self.config.model).items():
                if not (Path(where) / file).exists():
                    (Path(where) / file).write_bytes(content)
            on_disk.save_processor(self.encoder.processor, where)

    def _save_final(self, name: str, success: dict[str, Any] | None = None) -> None:
        card = policy_card(self.config, self.storage, success)
        with self._own_defaults():
            further, config = on_disk.further_files(self.config.model), self.config
            whole = merged(self.model, config.model, config.revision) if config.lora else self.model
            on_disk.save_final(self.storage, whole, self.encoder.processor, card, further, name)
