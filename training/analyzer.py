"""The Analyzer: given a collage and a log, it names pivot step, failure mode and guidance.

Evaluation and Stage II share this role: a case is the model's input, a reading is the content of its reply. Replies are
untrusted text; one that cannot be read becomes a fallback with a typed problem (the last step, the environment's first
mode, no guidance), so that callers can continue and count it. Any model of the group ``pivot.models`` can be the
Analyzer.
"""

import asyncio
import hashlib
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeVar

from ..collage import collage, episode_tiles
from ..core import plugins
from ..core.errors import TrainingError
from ..core.identity import derive_seed, digest
from ..core.images import container_format, decode
from ..core.messages import CUT, EncodedFrame, Role, bare_messages, without_thoughts
from ..environments.base import EnvProfile
from ..labeling.action_log import FLOAT_DECIMALS
from ..labeling.analyzer import analyzer_prompt
from ..labeling.base import FailedEpisode
from ..labeling.prose import is_refusal
from ..labeling.target import (
    PAPER_MODES,
    BadTargetError,
    TargetProblem,
    Vocabulary,
    parse_target,
    profile_under,
    target_modes,
)
from ..models.base import Backend, ChatAnswer, ChatModel, ChatRequest
from ..rollouts.base import request_id

ROLE: Role = "analyzer"
TEMPERATURE = 0.0
"""Greedy, so that an evaluation is reproducible."""

ReadingProblem = TargetProblem | Literal["cut", "empty", "refused", "out_of_range", "unknown_mode", "unanswered"]
"""Reason why a reply could not be read; ``unanswered`` if there was none."""

CUT_DETAIL = "the reply was cut at the token limit; raise --max-tokens (pivot train rl: --analyzer-tokens)"
_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AnalyzerCase:
    """Input of the Analyzer about one failed episode, and the bounds of its answer."""

    episode_id: str
    env: str
    messages: tuple[Mapping[str, Any], ...]
    """Chat messages; image parts are bare, their pictures are in ``images`` in the same order."""
    images: tuple[EncodedFrame, ...]
    num_steps: int
    modes: tuple[str, ...]
    """Failure modes that the prompt lists, the fallback's mode first."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A worked example in front of a case: a different case, and its target."""

    case: AnalyzerCase
    target: str


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of a reply."""

    pivot_step: int
    failure_mode: str
    failure_reason: str
    """Guidance; empty without any."""
    problem: ReadingProblem | None = None
    """Reason why the reply could not be read; step and mode are then the fallback's."""
    detail: str = ""
    """Details of the problem, for messages."""
    reply: str = ""
    call: Mapping[str, Any] | None = None
    """Usage of the request, as columns of the ``calls`` table."""


# Cases


def case_of_record(record: Mapping[str, Any]) -> AnalyzerCase:
    """Return the case of a dataset row, which needs the columns episode_id, env, prompt, images and num_steps.

    Raises:
        TrainingError: the numbers of image parts in the prompt and of pictures in the row differ.
        PluginError: the environment is not installed.
    """
    messages = tuple(bare_messages(record["prompt"]))
    pictures = tuple(encoded_picture(picture["bytes"]) for picture in record["images"])
    marks = sum(part["type"] == "image" for message in messages for part in message["content"])
    if marks != len(pictures):
        raise TrainingError(
            f"record {record['episode_id']}: found {marks} image parts in the prompt and {len(pictures)} pictures, "
            "expected equally many; "
            "build the dataset again"
        )
    profile = profile_under(plugins.load("environments", record["env"]).profile, json.loads(record["env_config"]))
    modes = profile.failure_modes
    text = record["completion"][0]["content"][0]["text"] if record.get("completion") else None
    if text is not None and parse_target(text).failure_mode not in modes:
        modes = PAPER_MODES
    return AnalyzerCase(record["episode_id"], record["env"], messages, pictures, record["num_steps"], modes)


def case_of_episode(
    profile: EnvProfile,
    episode: FailedEpisode,
    frames: Mapping[str, bytes],
    vocabulary: Vocabulary = "certificate",
    decimals: int = FLOAT_DECIMALS,
) -> AnalyzerCase:
    """Return the case of an episode in memory; ``frames`` are its encoded pictures by frame id.

    The collage is always lossless, also if a dataset would store it as JPEG.
    """
    profile = profile_under(profile, episode.env_config)
    prompt = analyzer_prompt(profile, episode, vocabulary, decimals=decimals)
    messages = tuple(bare_messages(prompt.messages))
    tiles = episode_tiles(profile.tiles, episode.frame_ids, episode.inside)
    pixels = collage([decode(frames[key]) for key in tiles.frames], tiles.labels)
    picture = EncodedFrame.encode(pixels)
    modes = target_modes(profile, vocabulary)
    return AnalyzerCase(episode.episode_id, episode.env, messages, (picture,), episode.num_steps, modes)


def encoded_picture(data: bytes) -> EncodedFrame:
    """Return a stored picture for a request, without decoding it; its name is a hash of its bytes."""
    return EncodedFrame(f"encoded-{hashlib.sha256(data).hexdigest()}", 0, 0, container_format(data), data)


# Replies


def read_reply(text: str, num_steps: int, modes: Sequence[str]) -> Reading:
    """Return the reading of a reply: its target JSON (after thoughts, within a code fence), or the fallback."""
    answer = without_thoughts(text)
    fenced = _FENCE.match(answer)
    try:
        target = parse_target(fenced[1] if fenced else answer)
    except BadTargetError as error:
        problem: ReadingProblem = "empty" if not answer else "refused" if is_refusal(answer) else error.problem
        return fallback(problem, error.detail, num_steps, modes, text)
    if not 0 <= target.pivot_step < num_steps:
        detail = f"pivot_step {target.pivot_step} is not in [0, {num_steps - 1}]"
        return fallback("out_of_range", detail, num_steps, modes, text)
    if target.failure_mode not in modes:
        detail = f"failure_mode {target.failure_mode[:40]!r} is none of {', '.join(modes)}"
        return fallback("unknown_mode", detail, num_steps, modes, text)
    return Reading(target.pivot_step, target.failure_mode, target.failure_reason, reply=text)


def fallback(problem: ReadingProblem, detail: str, num_steps: int, modes: Sequence[str], reply: str = "") -> Reading:
    """Return the reading that replaces an unreadable reply: the last step, the first mode, no guidance."""
    return Reading(num_steps - 1, modes[0], "", problem, detail, reply)


# The role


class Analyzer:
    """A chat model in the role of the Analyzer."""

    def __init__(self, backend: Backend, shots: Sequence[Shot] = ()) -> None:
        """Use a model of ``backend``; ``shots`` are worked examples in front of each case.

        Raises:
            ConfigError: a sampling setting is out of range.
        """
        self.backend = backend
        self.sampling = backend.settings.sampling(TEMPERATURE)
        self.shots = shots

    @property
    def config(self) -> dict[str, Any]:
        """Everything that decides the replies, except case and worked examples."""
        return {"backend": self.backend.name, **self.backend.config, "sampling": self.sampling.row()}

    def request(self, case: AnalyzerCase) -> ChatRequest:
        """Return the request about a case, with the worked examples in front."""
        messages: list[Mapping[str, Any]] = []
        images: dict[str, EncodedFrame] = {}
        for shot in self.shots:
            messages += _named(shot.case, images)
            messages.append({"role": "assistant", "content": [{"type": "text", "text": shot.target}]})
        messages += _named(case, images)
        return ChatRequest(
            request_id=request_id(case.episode_id, case.num_steps - 1, ROLE),
            episode_id=case.episode_id,
            t=None,
            role=ROLE,
            messages=messages,
            images=images,
            prompt_hash=digest(messages),
            sampling=self.sampling,
            seed=derive_seed(case.episode_id, ROLE),
        )


def reading_of(answer: ChatAnswer, case: AnalyzerCase) -> Reading:
    """Return the reading of a model's answer to a case."""
    if answer.refusal is not None:
        reading = fallback("refused", answer.refusal[:200], case.num_steps, case.modes, answer.text)
    else:
        reading = read_reply(answer.text, case.num_steps, case.modes)
        if reading.problem is not None and answer.finish_reason == CUT:
            reading = replace(reading, problem="cut", detail=CUT_DETAIL)
    return replace(reading, call=answer.call)


def _named(case: AnalyzerCase, images: dict[str, EncodedFrame]) -> list[Mapping[str, Any]]:
    """Return the messages of a case with frame ids in its image parts, and add its pictures to ``images``."""
    pictures = iter(case.images)
    named: list[Mapping[str, Any]] = []
    for message in case.messages:
        content = []
        for part in message["content"]:
            if part["type"] == "image":
                picture = next(pictures)
                images[picture.frame_id] = picture
                content.append({"type": "image", "frame_id": picture.frame_id})
            else:
                content.append(part)
        named.append({"role": message["role"], "content": content})
    return named


# Requests about many cases

READ_AHEAD = 8
"""Cases that one thread call reads, because a thread switch costs more than a read, and the least number that waits for
the model, so that a slow read does not leave it idle. A collage has up to 1 MB."""

Case = TypeVar("Case")
Result = TypeVar("Result")


def ask_all(
    backend: Backend,
    cases: Iterable[Case],
    ask: Callable[[ChatModel, Case], Awaitable[Result]],
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Return the result of every case, in order; a separate thread reads a few cases ahead.

    Args:
        backend: model to connect to.
        cases: the cases, read when they are needed.
        ask: sends the requests about one case; what it raises ends the run.
        on_result: receives every result, in the order in which they come.

    Raises:
        ServerGoneError: the server does not answer.
        ConfigError, PluginError: the model cannot be used with these settings.
    """
    return asyncio.run(_ask_all(backend, iter(cases), ask, on_result or (lambda _: None)))


async def _ask_all(
    backend: Backend,
    cases: Iterator[Case],
    ask: Callable[[ChatModel, Case], Awaitable[Result]],
    on_result: Callable[[Result], None],
) -> list[Result]:
    model = backend.connect()
    results: dict[int, Result] = {}
    numbered = enumerate(cases)
    reading, ready = asyncio.Lock(), deque[tuple[int, Case]]()

    async def work() -> None:
        while True:
            async with reading:
                if not ready:
                    ready.extend(await asyncio.to_thread(lambda: list(islice(numbered, READ_AHEAD))))
                if not ready:
                    return
                number, case = ready.popleft()
            results[number] = await ask(model, case)
            on_result(results[number])

    # More workers than requests at a time: some read from disk while the others wait for answers.
    count = backend.in_flight + max(READ_AHEAD, backend.in_flight // 4)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    finally:
        await model.aclose()
    return [results[number] for number in sorted(results)]
