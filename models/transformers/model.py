"""A model loaded into this process with transformers: waiting turns share one call of ``generate``.

Rows are padded on the left and every row is sampled with its own seed, so a reply depends on its own request alone, up
to rounding: a different batch shape may add numbers in a different order and decide a near tie differently. With
``batch_size=1`` replies are exactly repeatable on one machine. Every reply has token ids and log-probabilities.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from threading import Lock
from time import perf_counter
from typing import Any, Literal

from PIL import Image

from ...core.errors import ConfigError, ImageError, PolicyError
from ...core.identity import derive_seed
from ...core.images import decode
from ...core.messages import CUT, FINISHED, EncodedFrame, bare_messages
from ..base import ChatAnswer, ChatModel, ChatRequest, image_ids
from ..extras import need
from ..weights import is_local, revision_of
from .processors import load_processor

EXTRA = "transformers"
PACKAGES = ("torch", "transformers")
"""Packages of the extra."""
VERSION = "1"
"""Raised when equal requests get different replies, for example after a change of the sampling."""

BATCH_SIZE = 32
"""Turns per call of ``generate``: a 3B model with pictures of 256 pixels takes 12 GB in addition to its weights."""

DType = Literal["auto", "bfloat16", "float16", "float32"]


def picture_of(frame: EncodedFrame) -> Image.Image:
    """Return a stored frame as the RGB picture that processors take.

    Raises:
        PolicyError: the bytes are not a picture.
    """
    try:
        return Image.fromarray(decode(frame.image))
    except ImageError as error:
        raise PolicyError(f"frame {frame.frame_id} cannot be shown to the model: {error}") from error


class Engine:
    """The loaded model with its processor; it answers one batch at a time."""

    def __init__(self, model: Any, processor: Any, banned: Sequence[int] = ()) -> None:
        """Wrap a loaded model, possibly one in training.

        Args:
            model: the model; the defaults of its ``generation_config`` are moved to :attr:`own_defaults`.
            processor: processor of the model.
            banned: tokens that are never sampled.
        """
        transformers, self._torch = need("transformers", EXTRA), need("torch", EXTRA)
        self._model, self.processor = model, processor
        self.device, self.dtype = model.device, model.dtype
        self._banned = list(banned)
        tokenizer = processor.tokenizer
        self.own_defaults = model.generation_config
        own = self.own_defaults.eos_token_id
        ends = own if isinstance(own, list) else [tokenizer.eos_token_id if own is None else own]
        self._ends = {each for each in ends if each is not None}
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self._ends)
        # A checkpoint's own defaults (repetition penalty, nucleus) would change the requested distribution.
        model.generation_config = transformers.GenerationConfig(eos_token_id=sorted(self._ends), pad_token_id=pad)
        self._context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._processors_list = transformers.LogitsProcessorList

    @classmethod
    def load(cls, model: str, revision: str | None, dtype: DType, device: str) -> "Engine":
        """Load a model by its name.

        Raises:
            PluginError: PyTorch or transformers is not installed.
            ConfigError: the model does not exist, or it cannot be loaded on this machine.
        """
        transformers, torch = need("transformers", EXTRA), need("torch", EXTRA)
        device = _device(torch, device)
        hub_revision = None if is_local(model) else revision
        try:
            config = transformers.AutoConfig.from_pretrained(model, revision=hub_revision)
            loaded = transformers.AutoModelForImageTextToText.from_pretrained(
                model, revision=hub_revision, dtype=_dtype(torch, dtype, device)
            )
            loaded.to(device).eval()
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise ConfigError(
                f"cannot load model {model} on {device}: {error}; expected a save_pretrained directory, or a hub "
                "id that this machine can reach or has in its cache"
            ) from error
        return cls(loaded, load_processor(model, config.model_type, hub_revision))

    def answer(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
        """Answer a batch in one ``generate``, or in halves if memory is short.

        A request that cannot be encoded gets its error; the others get their answers.
        """
        rows: list[tuple[int, Any]] = []
        answers: list[ChatAnswer | Exception | None] = [None] * len(requests)
        for place, request in enumerate(requests):
            try:
                rows.append((place, self._prompt(request)))
            except PolicyError as error:
                answers[place] = error
        if rows:
            made = self._generate([requests[place] for place, _ in rows], [prompt for _, prompt in rows])
            for (place, _), answer in zip(rows, made, strict=True):
                answers[place] = answer
        return [PolicyError("the model gave no answer") if each is None else each for each in answers]

    def _prompt(self, request: ChatRequest) -> Any:
        """Return the prompt of a request as :meth:`_inputs` takes it: its text and pictures."""
        pictures = [picture_of(request.images[key]) for key in image_ids(request.messages)]
        text = self.processor.apply_chat_template(
            bare_messages(request.messages),
            tokenize=False,
            add_generation_prompt=True,
            **request.sampling.chat_template_kwargs,
        )
        return text, pictures

    def _inputs(self, prompts: Sequence[Any]) -> Any:
        """Return the tensors of prompts, padded on the left."""
        pictures = [picture for _, shown in prompts for picture in shown]
        return self.processor(
            text=[text for text, _ in prompts],
            images=pictures or None,
            padding=True,
            padding_side="left",
            return_tensors="pt",
        ).to(self.device)

    def _sample(self, requests: Sequence[ChatRequest], prompts: Sequence[Any], **settings: Any) -> Any:
        """Return the tokens of prompts and sampled replies; ``settings`` are arguments of ``generate``."""
        return self._model.generate(**settings)

    def _generate(self, requests: Sequence[ChatRequest], rows: Sequence[Any]) -> list[ChatAnswer | Exception]:
        try:
            return self._forward(requests, rows)
        except self._torch.OutOfMemoryError as error:
            self._torch.cuda.empty_cache()
            if len(rows) == 1:
                return [PolicyError(f"a single turn does not fit into the memory of {self.device}: {error}")]
        half = len(rows) // 2
        return self._generate(requests[:half], rows[:half]) + self._generate(requests[half:], rows[half:])

    def _forward(self, requests: Sequence[ChatRequest], rows: Sequence[Any]) -> list[ChatAnswer | Exception]:
        # Imported here: the class derives from one of transformers.
        from .sampling import SchemaMask, SeededSampler  # noqa: PLC0415

        started = perf_counter()
        inputs = self._inputs(rows)
        prompt_tokens = inputs["attention_mask"].sum(dim=1).tolist()
        width = inputs["input_ids"].shape[1]
        limit = max(request.sampling.max_tokens for request in requests)
        if self._context is not None and width + limit > self._context:
            problem = f"{width} prompt and {limit} reply tokens exceed the {self._context} of the model"
            if len(rows) == 1:
                return [PolicyError(problem)]
            return [
                each for row, request in zip(rows, requests, strict=True) for each in self._forward([request], [row])
            ]
        samplings = [request.sampling for request in requests]
        sampler = SeededSampler(
            [derive_seed(request.seed, request.sample) for request in requests],
            [each.temperature for each in samplings],
            [each.top_p for each in samplings],
            [each.top_k for each in samplings],
            self.device,
            self._banned,
        )
        processors = [sampler]
        if any(request.json_schema is not None for request in requests):
            schemas = [request.json_schema for request in requests]
            processors.insert(0, SchemaMask(self._grammar_tokens, schemas, width, sorted(self._ends)))
        with self._torch.inference_mode():
            listed = self._processors_list(processors)
            settings = {"max_new_tokens": limit, "do_sample": False, "logits_processor": listed}
            made = self._sample(requests, rows, **inputs, **settings)
        tokens, logprobs = made[:, width:].tolist(), sampler.logprobs().tolist()
        seconds = perf_counter() - started
        return [
            self._read(request, mine, chances, used, seconds)
            for request, mine, chances, used in zip(requests, tokens, logprobs, prompt_tokens, strict=True)
        ]

    @cached_property
    def _grammar_tokens(self) -> Any:
        """Return the tokenizer in llguidance's form, with as many tokens as the model has scores for."""
        count = self._model.config.get_text_config().vocab_size
        return need("llguidance.hf", EXTRA).from_tokenizer(self.processor.tokenizer, count, sorted(self._ends))

    def _read(
        self, request: ChatRequest, tokens: list[int], logprobs: list[float], prompt_tokens: int, seconds: float
    ) -> ChatAnswer:
        """Cut a row at its end token or its own limit; ``seconds`` is the time of its whole batch."""
        limit = min(request.sampling.max_tokens, len(tokens))
        end = next((place + 1 for place, token in enumerate(tokens[:limit]) if token in self._ends), None)
        length = limit if end is None else end
        ids = tokens[:length]
        return ChatAnswer(
            text=self.processor.tokenizer.decode(ids, skip_special_tokens=True),
            finish_reason=CUT if end is None else FINISHED,
            token_ids=tuple(ids),
            logprobs=tuple(logprobs[:length]),
            tokens=tuple(map(self.processor.tokenizer.decode, ids)) if request.wants_tokens else None,
            call={"latency": seconds, "prompt_tokens": prompt_tokens, "completion_tokens": length},
        )


def _device(torch: Any, requested: str) -> str:
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=requested)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {requested!r} cannot be used ({reason}); expected auto, cpu or cuda") from error
    return requested


def _dtype(torch: Any, requested: DType, device: str) -> Any:
    """Return half precision for a GPU and full precision for a CPU, whose half precision is slow."""
    if requested == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if requested not in ("bfloat16", "float16", "float32"):
        raise ConfigError(f"dtype {requested!r} cannot be used; expected auto, bfloat16, float16 or float32")
    return getattr(torch, requested)


_one_at_a_time = Lock()
"""Held while a model of this process is loaded or answers: policy and teacher may share one."""
QUIET_ROUNDS = 16
"""Rounds of the event loop without a new request after which the batch is complete."""


class InProcessModel(ChatModel):
    """A chat model that answers waiting requests in one ``generate`` when the event loop has nothing else to do.

    The batches are therefore a function of the episodes and not of timing, as long as no environment blocks.
    """

    def __init__(self, engine: Callable[[], Engine], config: dict[str, Any], batch: int, *, half: bool = False) -> None:
        """Generate with the result of ``engine``, at most ``batch`` replies at a time, in bfloat16 if ``half``."""
        self._engine, self._config, self._batch, self._half = engine, config, batch, half
        self._waiting: list[tuple[ChatRequest, asyncio.Future[ChatAnswer]]] = []
        self._worker: asyncio.Task[None] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The backend's config."""
        return self._config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request, in a batch with the other waiting requests."""
        future: asyncio.Future[ChatAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    def answer_all(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
        """Return answers in order, made in batches; a request that the model cannot read gets its error."""
        torch = need("torch", EXTRA)
        answers: list[ChatAnswer | Exception] = []
        with _one_at_a_time:
            engine = self._engine()
            with torch.autocast(torch.device(engine.device).type, torch.bfloat16, enabled=self._half):
                for first in range(0, len(requests), self._batch):
                    answers += engine.answer(requests[first : first + self._batch])
        return answers

    async def _work(self) -> None:
        while self._waiting:
            await self._quiet()
            batch = self._waiting[: self._batch]
            del self._waiting[: len(batch)]
            pending = [(request, future) for request, future in batch if not future.done()]
            try:
                answers = await asyncio.to_thread(self.answer_all, [request for request, _ in pending])
            except Exception as error:  # noqa: BLE001 - passed to every waiting request
                answers = [error] * len(pending)
            for (_, future), answer in zip(pending, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    async def _quiet(self) -> None:
        """Wait until no further request comes, or the batch is full."""
        quiet, count = 0, len(self._waiting)
        while quiet < QUIET_ROUNDS and count < self._batch:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == count else 0
            count = len(self._waiting)


_load = lru_cache(maxsize=2)(Engine.load)
"""One engine per model and process, shared by policy and teacher; it loads at the first request."""


class TransformersModel(InProcessModel):
    """A vision-language model of a local directory or the hub, on this machine's GPU or CPU."""

    def __init__(
        self,
        model: str,
        revision: str | None = None,
        dtype: DType = "auto",
        device: str = "auto",
        batch_size: int = BATCH_SIZE,
    ) -> None:
        """Store the name of the model, which is loaded with the first request.

        Args:
            model: ``save_pretrained`` directory or hub id.
            revision: revision of the hub repository; a local directory is identified by its content.
            dtype: ``auto`` is bfloat16 on a GPU and float32 on a CPU.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
            batch_size: most turns per call of ``generate``.
        """
        revision = revision_of(model, revision)
        config = {"model": model, "revision": revision, "dtype": dtype, "version": VERSION}
        super().__init__(lambda: _load(model, revision, dtype, device), config, batch_size)
