"""SVG reconstruction: see a picture, submit SVG documents that reproduce it, get a similarity score.

The first observation is the target. Every later one is the canvas: the raster of the last submission that could be
rendered, blank before there is one. A submission that is empty or cannot be rendered scores 0 and does not change the
canvas. The reward is 0 except at the last turn, where it is the score of the canvas. The episode ends when the turn
budget is spent or the score reaches ``success_return``.

A state is JSON text: the target document and, after the first turn, the canvas document (empty while blank) and its
scores. Documents are untrusted and rendered in a sandbox. A raster depends on the document and the installed version
of cairo, so frame ids may differ between machines with different versions.
"""

import json
import random
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from pydantic import Field, ValidationInfo, model_validator

from ...core import admission
from ...core.contracts import Fits, check_of, json_object
from ...core.errors import ConfigError, LevelError
from ...core.identity import canonical_json
from ...core.plugins import STORED
from ..base import EnvConfig, EnvProfile, Frame, Info, ParsedAction, Source
from ..generated import LevelEnv, TextSpace, first_level
from .icons import GENERATOR, draw_target
from .sandbox.pool import check_sandbox, rasterise
from .sandbox.raster import MAX_DOCUMENT_BYTES, SIDE, Outcome, document_key, refusal
from .scorers import Score, Scorer, load_scorer, scorer_version
from .sources import absolute, checked_source, load_source

SVG, EMPTY = "svg", "empty"
GENERATED = "generator"
"""Value of the setting ``targets`` for generated targets."""

_BLANK: Frame = np.full((SIDE, SIDE, 3), 255, np.uint8)
_BLANK.flags.writeable = False
_STATE_FORMAT = "svg-1"
_Share = Annotated[float, Fits(lambda value: 0 <= value <= 1, "a number from 0 to 1")]
_STATE = json_object(
    target=str,
    canvas=NotRequired[str | None],
    scores=NotRequired[json_object(average=_Share, parts=dict[str, _Share]) | None],
)


class SvgConfig(EnvConfig):
    """Settings of SVG reconstruction; the defaults are the paper's, except for scorer and targets."""

    locations: ClassVar[frozenset[str]] = frozenset({"targets", "dreamsim_weights"})
    level_sources: ClassVar[frozenset[str]] = frozenset({"targets"})

    horizon: int = Field(default=2, gt=0, le=1000)
    """``T_max``, turns."""
    success_return: float = Field(default=1.0, gt=0, le=1)
    """``R_succ``: the smallest score that counts as a success and ends the episode."""
    scorer: str = "pixel"
    """``pixel`` (embedded) or ``dino+dreamsim`` (the paper's; needs the ``perceptual`` extra and its weights)."""
    scorer_version: str = ""
    """Filled in: the version of the scorer. Stores of a different version are refused, because scores would differ."""
    dino_model: str = "facebook/dinov2-small"
    """Folder or hub id of the DINOv2 checkpoint; this and the next two settings apply only to ``dino+dreamsim``."""
    dreamsim_model: str = "ensemble"
    """``dreamsim_type`` of the dreamsim package."""
    dreamsim_weights: str = ""
    """Folder of the package's weights, which are downloaded to it if missing; empty for ``~/.cache/dreamsim``."""
    targets: str = "generator"
    """``generator``, a folder with SVG files, or ``hf:DATASET:COLUMN``."""
    targets_digest: str = ""
    """Filled in: the digest of the documents, unless ``targets`` is ``generator``."""
    max_tries: int = Field(default=100, ge=1, le=100_000)
    """Maximum number of documents to sample per level until one can be rendered and is not blank."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, dict):
            return values
        name = values.get("scorer", "pixel")
        try:
            installed = scorer_version(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        stored = values.get("scorer_version") or installed
        if stored != installed:
            raise ValueError(
                f"scorer_version is {stored!r}, but {name!r} has version {installed!r} here, and scores of "
                f"different versions are not comparable: install version {stored}, or build a new store"
            )
        filled = {"scorer_version": installed}
        targets = values.get("targets", GENERATED)
        if targets == GENERATED:
            filled["targets_digest"] = ""
        elif isinstance(targets, str):
            filled["targets"] = targets = absolute(targets)
            if not values.get("targets_digest"):
                if info.context == STORED:
                    raise ValueError("targets_digest is missing; copy it from the store's run.json")
                try:
                    filled["targets_digest"] = load_source(targets).digest
                except ConfigError as error:
                    raise ValueError(str(error)) from error
        return values | filled

    @property
    def sources(self) -> tuple[Source, ...]:
        """The user's own target documents, whose licence is unknown; empty for generated targets."""
        return () if self.targets == GENERATED else (Source(f"the target documents of {self.targets}", None),)

    @property
    def tolerance(self) -> float:
        """Tolerance of learned scores, which vary slightly with GPU and batch; 0 for the embedded scorer."""
        return 0.0 if self.scorer == "pixel" else 0.001

    @property
    def code(self) -> dict[str, str]:
        """Checkpoints of a learned scorer that are not the default ones."""
        fields, names = type(self).model_fields, ("dino_model", "dreamsim_weights") if self.scorer != "pixel" else ()
        chosen = {name: getattr(self, name) for name in names if getattr(self, name) != fields[name].get_default()}
        return {value: f"svg.{name}" for name, value in chosen.items()}

    def make_scorer(self) -> Scorer:
        """Return this process's scorer for these settings.

        Raises:
            NotAllowedError: this call does not allow its checkpoints.
        """
        admission.require(self.code)
        models = ("dino_model", "dreamsim_model", "dreamsim_weights") if self.scorer != "pixel" else ()
        return load_scorer(self.scorer, tuple((name, getattr(self, name)) for name in models))

    @property
    def repeats_exactly(self) -> bool:
        """Whether scores repeat exactly; the last digits of learned ones depend on device and batch."""
        return self.scorer == "pixel"

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """Note that the embedded scorer replaces the paper's."""
        if self.scorer != "pixel":
            return ()
        return (
            f"scorer `pixel` {self.scorer_version} of svg is embedded and compares pixels in place of the perceptual "
            "scores of `dino+dreamsim`",
        )


class Documents(TextSpace):
    """Space of submissions, which are any text; samples are small documents."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a document of one random circle."""
        x, y, radius, colour = (int(number) for number in self.np_random.integers(1, 99, 4))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><circle cx="{x}" cy="{y}" r="{radius}" '
            f'fill="rgb({colour},90,120)"/></svg>'
        )


class SvgEnv(LevelEnv):
    """SVG reconstruction of a picture; see the module docstring and :class:`~pivot.environments.base.PivotEnv`."""

    blocks = True
    config: SvgConfig
    config_type: ClassVar[type[EnvConfig]] = SvgConfig
    instruction: ClassVar[str] = "Reproduce the target picture as one SVG document."
    profile: ClassVar[EnvProfile] = EnvProfile(
        name="svg",
        version=f"1+targets-{GENERATOR}",
        backend="embedded",
        answer_tag="answer",
        unusable_action=EMPTY,
        failure_modes=("format", "regression", "stagnation", "mismatch"),
        state_format=_STATE_FORMAT,
        log_fields=("valid_svg", "remaining_turns", "average_score"),
        task_description=(
            "SVG reconstruction: submit whole SVG documents, one a turn, whose drawing on a white canvas of "
            f"{SIDE}x{SIDE} pixels looks like the target picture; the last canvas is scored from 0 to 1."
        ),
        default_tasks=216,
        has_success_bit=False,
        tiles="outcomes",
        reply_limit=MAX_DOCUMENT_BYTES,
        keeps_case=True,
    )

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; call ``reset`` before any other method."""
        super().__init__(config, render_mode)
        self.action_space = Documents()
        self.observation_space = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
        self._target = ""
        self._target_frame = _BLANK
        self._canvas: str | None = None  # None before the first turn, "" while blank
        self._canvas_frame = _BLANK
        self._score = Score(0.0, {})
        self._turn = 0

    @property
    def success_return(self) -> float:
        """``R_succ`` of this environment's settings."""
        return self.config.success_return

    # --- levels ------------------------------------------------------------------------------------------------------

    @classmethod
    def find_level(cls, config: SvgConfig, seed: int) -> tuple[int, str]:
        """Draw documents until one is not blank, from the generator or a source that has not changed; see the base."""

        def draw(rng: random.Random) -> str | None:
            document = draw_target(rng) if source is None else source.draw(rng)
            return None if document is None else canonical_json({"target": document})

        source = None if config.targets == GENERATED else checked_source(config.targets, config.targets_digest)
        advice = f"too few documents of targets={config.targets!r} can be drawn and are not blank"
        return first_level(draw, cls.profile.name, seed, config.max_tries, advice)

    @classmethod
    def check_ready(cls, config: Any) -> None:
        """Start a rasteriser, and load and test the scorer; see the base class."""
        check_sandbox()
        config.make_scorer().check()

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return the state as canonical JSON without the scores, which can be recomputed."""
        target, canvas, _ = _parse_state(initial_state)
        return canonical_json({"target": target} if canvas is None else {"target": target, "canvas": canvas})

    # --- gymnasium ---------------------------------------------------------------------------------------------------

    def _begin(self, text: str) -> Info:
        self._load(*_parse_state(text))
        self._start_at(0)
        return {"remaining_turns": self.config.horizon}

    def step(self, action: str) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Take one turn: submit a document; the empty document is the unusable action.

        Raises:
            ValueError: ``action`` is not text.
            gymnasium.error.ResetNeeded: the episode is over.
            SimulatorError: no worker returned an outcome for the document; the state is unchanged.
        """
        if not isinstance(action, str):
            raise ValueError(f"an action is the text of a document, not {type(action).__name__}; use encode_action()")
        if self._ended:
            raise ResetNeeded(f"the {self.profile.name} episode is over or not begun; call reset() or restore() first")
        raster = rasterise(action)
        submitted = Score(0.0, {})
        if raster.pixels is not None:
            submitted = self._likeness(raster.pixels)
            self._canvas, self._canvas_frame, self._score = action, raster.pixels, submitted
        elif self._canvas is None:
            self._canvas = ""
        self._turn += 1
        remaining = self.config.horizon - self._turn
        terminated = self._score.average >= self.config.success_return
        truncated = not terminated and remaining == 0
        self._ended = terminated or truncated
        info = {
            "valid_svg": raster.outcome is Outcome.OK,
            "average_score": submitted.average,
            "remaining_turns": remaining,
            "submission_outcome": raster.outcome.value,
            "score_parts": canonical_json(submitted.parts) if submitted.parts else None,
        }
        return self._frame(), self._score.average if self._ended else 0.0, terminated, truncated, info

    # --- PIVOT -------------------------------------------------------------------------------------------------------

    def parse_action(self, answer: str) -> ParsedAction | None:
        """Parse one document: text that begins with a tag and contains ``<svg``, optionally in a Markdown code fence.

        A document that cannot be rendered is still a submission, with ``valid_svg`` false.
        """
        text = answer.strip()
        if text.startswith("```"):
            text = text.partition("\n")[2].removesuffix("```").strip()
        if not text.startswith("<") or "<svg" not in text or len(text) > MAX_DOCUMENT_BYTES:
            return None
        return ParsedAction(SVG, json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False))

    def encode_action(self, name: str, payload: str | None = None) -> str:
        """Return the document to submit; see the base class."""
        if name == EMPTY and payload is None:
            return ""
        if name != SVG or payload is None:
            raise ValueError(f"no action {name!r} with payload {str(payload)[:40]!r}; {SVG} has one, {EMPTY} none")
        try:
            document = json.loads(payload)
        except ValueError as error:
            raise ValueError(f"the payload of {SVG} is not JSON: {error}") from error
        if not isinstance(document, str):
            raise ValueError(f"the payload of {SVG} is {type(document).__name__}, expected a JSON string")
        return document

    def state_text(self) -> str:
        """Return the target and, after the first turn, the canvas with its scores, as canonical JSON."""
        return canonical_json(self._state())

    def changing_state(self) -> str:
        """Return the scores of the canvas, whose document is the payload of the last accepted submission."""
        return canonical_json({key: value for key, value in self._state().items() if key == "scores"})

    def snapshot(self) -> bytes:
        """Return the turn count and the state."""
        return canonical_json({"turn": self._turn, "state": self._state()}).encode()

    def restore(self, snapshot: bytes) -> Frame:
        """Restore a snapshot; see the base class.

        Raises:
            LevelError: the bytes are not a snapshot of this environment.
        """
        try:
            data = json.loads(snapshot)
            turn, state = data["turn"], data["state"]
        except (ValueError, KeyError, TypeError) as error:
            raise LevelError(f"not an {self.profile.name} snapshot: {type(error).__name__}: {error}") from error
        if type(turn) is not int or not 0 <= turn <= self.config.horizon:
            raise LevelError(f"not an {self.profile.name} snapshot: turn {turn!r}, expected 0 to {self.config.horizon}")
        self._load(*_read_state(state))
        self._start_at(turn)
        return self._frame()

    def frame_key(self) -> str:
        """Return the key of the displayed document: the target, or the canvas with its hash."""
        return "target" if self._canvas is None else document_key(self._canvas)

    def _state(self) -> dict[str, Any]:
        if self._canvas is None:
            return {"target": self._target}
        scores = {"average": self._score.average, "parts": dict(self._score.parts)}
        return {"target": self._target, "canvas": self._canvas, "scores": scores}

    def _load(self, target: str, canvas: str | None, score: Score | None) -> None:
        """Load a state, or raise LevelError and change nothing."""
        target_frame = _drawn(target, "target")
        canvas_frame = _drawn(canvas, "canvas") if canvas else _BLANK
        self._target, self._target_frame = target, target_frame
        self._canvas, self._canvas_frame = canvas, canvas_frame
        if not canvas:
            score = Score(0.0, {})
        self._score = score if score is not None else self._likeness(canvas_frame)

    def _likeness(self, pixels: Frame) -> Score:
        return self.config.make_scorer().score(self._target_frame, [pixels])[0]

    def _start_at(self, turn: int) -> None:
        self._turn = turn
        self._ended = turn >= self.config.horizon or self._score.average >= self.config.success_return

    def _draw(self) -> Frame:
        return (self._target_frame if self._canvas is None else self._canvas_frame).copy()


def _drawn(document: str, what: str) -> Frame:
    raster = rasterise(document)
    if raster.pixels is None:
        raise LevelError(f"the {what} of the svg state cannot be drawn: {raster.outcome}: {raster.detail}")
    return raster.pixels


def _parse_state(text: object) -> tuple[str, str | None, Score | None]:
    if not isinstance(text, str):
        raise LevelError(f"an svg state is text, not {type(text).__name__}")
    if len(text) > 16 * MAX_DOCUMENT_BYTES:
        raise LevelError(f"the svg state has {len(text)} characters, more than two documents can have")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LevelError(f"the svg state is not JSON: {error}") from error
    return _read_state(data)


def _read_state(data: Any) -> tuple[str, str | None, Score | None]:
    """Check a decoded state; return target, canvas (None before the first turn) and score (None to compute it)."""
    if misfit := check_of(_STATE)(data):
        raise LevelError(f"the {misfit.field.lstrip('.') or 'object'} of the svg state is {misfit}")
    target, canvas, scores = data["target"], data.get("canvas"), data.get("scores")
    for name, document in (("target", target), ("canvas", canvas)):
        refused = refusal(document) if document or name == "target" else None
        if refused is not None:
            raise LevelError(f"the {name} of the svg state cannot be drawn: {refused.outcome}: {refused.detail}")
    return target, canvas, None if scores is None else Score(scores["average"], scores["parts"])
