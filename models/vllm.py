"""vLLM in this process: its engine batches continuously, so every turn is submitted as soon as it comes.

The engine runs in its own event loop in a background thread and serves any number of episodes from any loop. Like a
vLLM server it samples each reply with the seed of its request; log-probabilities are those of the model before
temperature. For several machines, or to keep a model loaded between runs, use a server and ``openai``.
"""

import asyncio
import json
import os
import threading
from collections.abc import Coroutine
from functools import lru_cache
from time import perf_counter
from typing import Any, ClassVar

from pydantic import Field

from ..core.errors import BrokenOffError, ConfigError, PolicyError
from ..core.identity import derive_seed
from ..core.messages import Sent, bare_messages
from ..core.plugins import Settings
from .base import Backend, ChatAnswer, ChatModel, ChatRequest, ModelOptions, image_ids
from .extras import need
from .service import Unserved
from .transformers.model import DType, picture_of
from .weights import is_local, revision_of

EXTRA = "vllm"
VERSION = "1"
"""Raised when a change of ours makes equal requests get different replies."""

MAX_MODEL_LEN = 8192
"""Tokens of prompt and reply together: a collage of renders takes about 3,000."""

MAX_IMAGES = 8
"""Most pictures in one prompt; memory is reserved for the worst case."""

TRIES = 3
"""Most tries of a request whose answers the engine breaks off."""


class Engine:
    """The engine and its event loop."""

    def __init__(self, model: str, revision: str | None, dtype: DType, settings: str) -> None:
        """Start the engine; takes from half a minute to minutes.

        Args:
            model: saved directory or hub id.
            revision: revision of the hub repository.
            dtype: precision; ``auto`` is the checkpoint's own.
            settings: more engine arguments as a JSON object.

        Raises:
            PluginError: vLLM is not installed.
            ConfigError: it cannot serve this model on this machine.
        """
        # By default vLLM forks its workers; threads and compiled code of this process do not survive a fork. It
        # also logs a hundred lines over our progress bars.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        arguments = need("vllm.engine.arg_utils", EXTRA)
        engine = need("vllm.v1.engine.async_llm", EXTRA)
        self._params = need("vllm", EXTRA).SamplingParams
        self._sampling = need("vllm.sampling_params", EXTRA)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="pivot-vllm", daemon=True).start()
        on_gpu = need("torch", EXTRA).cuda.is_available()
        chosen = {
            "model": model,
            "revision": None if is_local(model) else revision,
            "dtype": dtype,
            "max_model_len": MAX_MODEL_LEN,
            "limit_mm_per_prompt": {"image": MAX_IMAGES, "video": 0},
            # The checkpoint's own sampling defaults would sample from a distribution that was not requested.
            "generation_config": "vllm",
            "disable_log_stats": True,
            # CUDA graphs are most of the speed on a GPU; without one there is nothing to capture.
            "enforce_eager": not on_gpu,
            # vLLM discards tokens sampled after half a prompt; on a CPU it cannot, and dies.
            **({} if on_gpu else {"enable_chunked_prefill": False}),
            **json.loads(settings),
        }
        try:
            self._engine = self._run(_start(engine.AsyncLLM, arguments.AsyncEngineArgs(**chosen)))
            self._tokenizer = self._engine.get_tokenizer()
            if asyncio.iscoroutine(self._tokenizer):
                self._tokenizer = self._run(self._tokenizer)
        except Exception as error:
            raise ConfigError(f"vLLM cannot serve {model} here: {type(error).__name__}: {error}") from error
        threading.Thread(target=self._end_with_the_program, name="pivot-vllm-end").start()

    def _end_with_the_program(self) -> None:
        """End vLLM's processes, which would otherwise stay and keep the GPU.

        The command exits before exit functions run, but like every Python program it waits for threads such as this.
        """
        threading.main_thread().join()
        self._engine.shutdown()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request; may be awaited in any event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._answer(request), self._loop))

    async def _answer(self, request: ChatRequest) -> ChatAnswer:
        """Send the request until its answer is not broken off, at most ``TRIES`` times."""
        for left in reversed(range(TRIES)):
            request.sent.tries += 1
            try:
                return await self._try(request)
            except BrokenOffError as error:
                request.sent.broken_off += 1
                if not left:
                    sent = request.sent
                    report = {"attempts": sent.tries, "answered": False, "broken_off": sent.broken_off}
                    raise BrokenOffError(
                        f"no answer from vLLM in {sent.tries} tries (last: {error})", report
                    ) from error
        raise AssertionError("the last try returns or raises")

    async def _try(self, request: ChatRequest) -> ChatAnswer:
        started = perf_counter()
        pictures = [picture_of(request.images[key]) for key in image_ids(request.messages)]
        text = self._tokenizer.apply_chat_template(
            bare_messages(request.messages),
            tokenize=False,
            add_generation_prompt=True,
            **request.sampling.chat_template_kwargs,
        )
        prompt: dict[str, Any] = {"prompt": text}
        if pictures:
            prompt["multi_modal_data"] = {"image": pictures}
        # Ids must differ between concurrent requests: two label versions may send the same one at a time.
        name = f"{request.request_id}-{id(request)}"
        outputs: list[Any] = []
        try:
            async for output in self._engine.generate(prompt, self._sampling_of(request), name):
                outputs = [output]
        except ValueError as error:  # a prompt that is too long, or too many pictures
            raise PolicyError(f"vLLM refuses the request: {error}") from error
        if not outputs:
            raise PolicyError("vLLM gave no output")
        return _read(outputs[0], request.sent, perf_counter() - started)

    def _sampling_of(self, request: ChatRequest) -> Any:
        chosen = request.sampling
        guided = {}
        if request.json_schema is not None:
            guided["structured_outputs"] = self._sampling.StructuredOutputsParams(json=dict(request.json_schema))
        return self._params(
            temperature=chosen.temperature,
            top_p=chosen.top_p,
            top_k=chosen.top_k,
            max_tokens=chosen.max_tokens,
            seed=derive_seed(request.seed, request.sample),
            logprobs=0,
            output_kind=self._sampling.RequestOutputKind.FINAL_ONLY,
            **guided,
        )


async def _start(engine: Any, arguments: Any) -> Any:
    """Create the engine inside its event loop, where its background tasks run."""
    return engine.from_engine_args(arguments)


def _read(output: Any, sent: Sent, seconds: float) -> ChatAnswer:
    made = output.outputs[0]
    ids = tuple(made.token_ids)
    chances = made.logprobs
    logprobs = None if chances is None else tuple(row[token].logprob for token, row in zip(ids, chances, strict=True))
    tokens = None if chances is None else [row[token].decoded_token for token, row in zip(ids, chances, strict=True)]
    return ChatAnswer(
        text=made.text,
        finish_reason=made.finish_reason or "abort",
        token_ids=ids,
        logprobs=logprobs,
        tokens=tuple(each or "" for each in tokens) if tokens is not None else None,
        call={
            "attempts": sent.tries,
            "broken_off": sent.broken_off,
            "latency": seconds,
            "prompt_tokens": len(output.prompt_token_ids or ()),
            "completion_tokens": len(ids),
        },
    )


@lru_cache(maxsize=1)
def _engine(model: str, revision: str | None, dtype: DType, settings: str) -> Engine:
    """The one engine per process, shared by policy and teacher: it takes most of the GPU."""
    return Engine(model, revision, dtype, settings)


class VllmModel(ChatModel):
    """A vision-language model in a vLLM engine of this process."""

    def __init__(
        self, model: str, revision: str | None = None, dtype: DType = "auto", engine: dict[str, Any] | None = None
    ) -> None:
        """Store the name of the model; the engine starts with the first request.

        Args:
            model: saved directory or hub id.
            revision: revision of the hub repository; a local directory is identified by its content.
            dtype: ``auto`` is the checkpoint's own.
            engine: more arguments of vLLM's engine, such as ``{"gpu_memory_utilization": 0.8}``.
        """
        self._model = model
        self._revision = revision_of(model, revision)
        self._dtype: DType = dtype
        self._settings = json.dumps(engine or {}, sort_keys=True)
        self._starting = asyncio.Lock()
        self._failure: ConfigError | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Return model, revision and precision."""
        return {"model": self._model, "revision": self._revision, "dtype": self._dtype, "version": VERSION}

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request; the engine batches it with other current requests."""
        async with self._starting:
            if self._failure is not None:
                raise self._failure  # a start takes a minute: it is not repeated for every episode
            try:
                engine = await asyncio.to_thread(_engine, self._model, self._revision, self._dtype, self._settings)
            except ConfigError as error:
                self._failure = error
                raise
        return await engine.answer(request)


class VllmOptions(ModelOptions):
    """Options of a model in a vLLM engine of this process."""

    dtype: DType = "auto"
    """``auto`` is the checkpoint's own."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """More arguments of vLLM's engine, such as ``{"gpu_memory_utilization": 0.8}``."""


class VllmBackend(Backend):
    """vLLM with a saved directory or hub id; structured output keeps the answers of a writer valid."""

    name: ClassVar[str] = "vllm"
    extra: ClassVar[str] = EXTRA
    packages: ClassVar[tuple[str, ...]] = (EXTRA,)
    config_type: ClassVar[type[Settings]] = VllmOptions
    service_type: ClassVar[type[Settings]] = Unserved
    one_process: ClassVar[bool] = True
    settings: VllmOptions

    @property
    def config(self) -> dict[str, Any]:
        """Check that a model is given; its content is read with the first request."""
        return self._model().config

    @property
    def in_flight(self) -> int:
        """Return the default number of sequences per step of vLLM."""
        return 256

    def connect(self) -> ChatModel:
        """Return the model, whose engine starts with the first request."""
        return self._model()

    def _model(self) -> VllmModel:
        return VllmModel(self.settings.model, self.settings.revision, self.settings.dtype, self.settings.engine)
