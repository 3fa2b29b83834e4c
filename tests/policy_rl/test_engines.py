"""Generation engines: servers over a stand-in and over vLLM itself, wrong weights, and engines of another package.

The stand-in is a chat server around the same kind of model; ``make test WHAT=serving`` does the same with vLLM itself,
in the environment of training: PIVOT_VLLM_PYTHON names the Python of vLLM's own.
"""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from pivot.core import plugins
from pivot.core.errors import PluginError, ServerGoneError, TrainingError
from pivot.core.messages import EncodedFrame
from pivot.models.base import ChatRequest, Sampling
from pivot.models.transformers.model import Engine
from pivot.tests.flow_runs import Handler, clean_environment, listening
from pivot.tests.policy_rl import matrix
from pivot.tests.training.lake import lines_of, save_grammatical, torch
from pivot.training.analyzer import encoded_picture
from pivot.training.encode import Encoder
from pivot.training.loading import add_adapters, load_adapters
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.config import make_rl_config
from pivot.training.policy_rl.engines import vllm
from pivot.training.policy_rl.engines.probe import Probe
from pivot.training.policy_rl.engines.vllm import BASE, CACHES, NAME, ServedModel, Server, server_words
from pivot.training.policy_rl.levels import first_turns

pytestmark = pytest.mark.train
FAMILY = "qwen2_5_vl"


def _config(tmp_path: Path, patch: pytest.MonkeyPatch, **fields: Any) -> Any:
    """A run with the model and levels of other tests."""
    matrix.share(patch, "frozenlake", FAMILY)
    config = matrix.config_of("frozenlake", "mp", str(matrix.saved(FAMILY, tmp_path / "model")))
    return config.model_copy(update={"validation_episodes": 4, **fields})


# Servers


class _Answers:
    """Handler of requests, one at a time, because there is one model."""

    def __init__(self, model: Any, processor: Any) -> None:
        self._model, self._processor = model.eval(), processor
        self._lock = threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.routes: dict[str, Callable[[Any], None]] = {}
        """Handlers of further routes by path; each gets the request's body."""

    def to(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer in vLLM's form when token ids are requested."""
        self.asked.append(body)
        frames: dict[str, EncodedFrame] = {}
        messages = []
        for message in body["messages"]:
            content = []
            for part in message["content"]:
                if _is_picture(part):
                    frame = encoded_picture(base64.b64decode(part["image_url"]["url"].partition(",")[2]))
                    frames[frame.frame_id] = frame
                    content.append({"type": "image", "frame_id": frame.frame_id})
                else:
                    content.append(part)
            messages.append({**message, "content": content})
        banned = [int(token) for token, bias in body.get("logit_bias", {}).items() if bias == -100]
        engine = Engine(self._model, self._processor, banned)
        sampling = Sampling(body["temperature"], max_tokens=body["max_tokens"])
        request = ChatRequest("", "", 0, "student", messages, frames, "", sampling, body["seed"], wants_tokens=True)
        with self._lock:
            (answer,) = engine.answer([request])
            self._model.generation_config = engine.own_defaults
        if isinstance(answer, Exception) or answer.tokens is None or answer.logprobs is None:
            raise TypeError(answer)
        content = [
            {"token": text, "logprob": value} for text, value in zip(answer.tokens, answer.logprobs, strict=True)
        ]
        choice = {
            "message": {"role": "assistant", "content": answer.text},
            "finish_reason": answer.finish_reason,
            "token_ids": list(answer.token_ids or ()),
            "logprobs": {"content": content},
        }
        return {"choices": [choice], "model": body["model"]}


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image_url"


@contextmanager
def model_server(model: Any, processor: Any) -> Iterator[tuple[str, _Answers]]:
    """Serve a model on this machine."""
    answers = _Answers(model, processor)

    class Served(Handler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            if self.path in answers.routes:
                answers.routes[self.path](body)
                self.reply(200, b"Success: done.")
            else:
                made = {"data": [{"id": NAME}]} if self.command == "GET" else answers.to(body)
                self.reply(200, json.dumps(made).encode(), {"Content-Type": "application/json"})

    with listening(Served) as url:
        yield f"{url}/v1", answers


class StandIn(Server):
    """A server in this process that loads all or some of the given weights."""

    last: "StandIn"
    stale: tuple[str, ...] = ()
    """Parts of the names of weights that keep their old values."""

    def __init__(self, *_: Any) -> None:
        self.model, processor = deepcopy(matrix.player(FAMILY))
        self._opened = model_server(self.model, processor)
        self._address, self._answers = self._opened.__enter__()
        self.starts: list[str] = []
        self.forgot = 0
        self.url = ""
        StandIn.last = self

    def restart(self, model: Sequence[str], name: str = NAME, variables: Mapping[str, str] | None = None) -> None:
        """Load all weights but stale ones; prepare the model for adapters if there are any."""
        self.starts.append(name)
        self.url = self._address
        assert Path(model[0]).is_absolute(), "the server runs elsewhere"
        if "--enable-lora" in model:
            assert variables and variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
            add_adapters(self.model, rank=4, alpha=128, seed=1)
            self._answers.routes["/v1/load_lora_adapter"] = self._swap
            self._answers.routes |= dict.fromkeys(CACHES, lambda _: self._forget())
            return
        saved = type(self.model).from_pretrained(model[0]).state_dict()
        kept = self.model.state_dict()
        new = {name: value for name, value in saved.items() if not any(part in name for part in self.stale)}
        if "lm_head" in self.stale:  # what a vLLM that reloads does to tied embeddings
            self.model.lm_head.weight = torch.nn.Parameter(kept["lm_head.weight"].clone())
        self.model.load_state_dict(kept | new)

    def _swap(self, body: dict[str, Any]) -> None:
        assert body["load_inplace"] and body["lora_name"] == NAME
        assert Path(body["lora_path"]).is_absolute(), "the server runs elsewhere"
        if not self.stale:
            load_adapters(self.model, Path(body["lora_path"]))

    def _forget(self) -> None:
        self.forgot += 1

    def close(self) -> None:
        """Stop the server."""
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
        self._opened = None


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose server is a stand-in."""
    monkeypatch.setattr(vllm, "Server", StandIn)
    monkeypatch.chdir(tmp_path)
    return _config(tmp_path, monkeypatch, engine="vllm", updates=3)


def test_a_run_generates_with_servers_that_get_every_update(config: Any) -> None:
    loop.train(loop.prepare(config), Path("run"))
    before, *lines = lines_of(Path("run"))
    assert "validation" in before
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["sync_difference"] < 1e-5 and line["generator_difference"] < 1e-5
        assert line["errors"] == line["placeholders"] == 0
        assert line["grad_norm"] > 0


@pytest.mark.parametrize("stale", ["visual", "lm_head", "layers"])
def test_servers_that_hold_other_weights_stop_the_run(
    stale: str, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "stale", (stale,))
    with pytest.raises(TrainingError, match=r"differ from the trainer's by .* expected at most 0\.001: it has other"):
        loop.train(loop.prepare(config), tmp_path / "run")
    assert [line["step"] for line in lines_of(tmp_path / "run")] == [0, 1], "the first weights are the server's own"


def test_adapters_are_swapped_while_the_servers_run(config: Any, tmp_path: Path) -> None:
    loop.train(loop.prepare(config.model_copy(update={"lora": True, "lora_rank": 4, "updates": 2})), Path("run"))
    _, *lines = lines_of(Path("run"))
    assert [line["sync_difference"] < 1e-5 and line["generator_difference"] < 1e-5 for line in lines] == [True] * 2
    assert StandIn.last.starts == [BASE], "it is started once"
    assert StandIn.last.forgot == 3 * len(CACHES), "after the start and after every update"


def test_servers_that_keep_old_adapters_stop_the_run(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "stale", ("adapters",))
    config = config.model_copy(update={"lora": True, "lora_rank": 4, "lr": 1e-2, "validation_episodes": 0})
    with pytest.raises(TrainingError, match="it has other weights"):
        loop.train(loop.prepare(config), tmp_path / "run")


def test_a_probe_asks_about_pictures_and_equal_sides_pass() -> None:
    model, processor = matrix.player(FAMILY)
    turns = first_turns(matrix.levels_of("sokoban"), 3)
    assert len({turn.prompt.prompt_hash for turn in turns}) == 3
    encoder = Encoder(processor)
    connect = partial(ServedModel, config={}, banned=encoder.placeholders, in_flight=3)
    probe = Probe(encoder, turns, connect, half=False)
    with model_server(deepcopy(model), processor) as (url, answers):
        assert probe.check(model, url) < 1e-5
    assert all("data:image" in str(body["messages"]) for body in answers.asked)
    assert all(body["logit_bias"] for body in answers.asked), "no picture token is drawn"


def test_a_server_that_does_not_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    server = Server("python -c 'raise SystemExit(\"no such device\")'", tmp_path / "server")
    with pytest.raises(ServerGoneError, match=r"(?s)did not start; see .*output\.log.*no such device"):
        server.restart([str(tmp_path)])
    assert not server.url
    with pytest.raises(ServerGoneError, match="--server-command"):
        Server("/no/such/vllm", tmp_path / "server").restart([str(tmp_path)])


def test_servers_end_with_a_run_that_gets_sigterm(tmp_path: Path) -> None:
    """SIGTERM, as batch systems send it, arrives while the run waits for its servers to start."""
    start, pid_file = save_grammatical(tmp_path / "start"), tmp_path / "server.pid"
    server = f"sh -c 'echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600' server"
    words = ("--model", start, "--out", tmp_path / "run", "--engine", "vllm", "--server-command", server)
    command = ("train", "rl", "frozenlake", *words, "--levels", "12", "--prompts", "4", "--set", "size=2")
    run = subprocess.Popen([sys.executable, "-m", "pivot", *map(str, command)], env=clean_environment())
    try:
        until = time.monotonic() + 120
        while not pid_file.exists() and time.monotonic() < until:
            assert run.poll() is None
            time.sleep(0.1)
        started = psutil.Process(int(pid_file.read_text(encoding="utf-8")))
        run.terminate()
        assert run.wait(60) == 130
        assert not started.is_running() or started.status() == psutil.STATUS_ZOMBIE
    finally:
        run.kill()


def test_a_command_line_keeps_what_the_user_gave(tmp_path: Path) -> None:
    words = server_words("vllm serve --limit-mm-per-prompt '{\"image\": 9}'", [str(tmp_path)], 8123)
    assert words[:4] == ["vllm", "serve", "--limit-mm-per-prompt", '{"image": 9}']
    assert words[words.index("--logprobs-mode") + 1] == "processed_logprobs"


PYTHON = os.environ.get("PIVOT_VLLM_PYTHON", "")
UPDATES = 5
LIMITS = '--enforce-eager --block-size 32 --max-model-len 4096 --limit-mm-per-prompt \'{"image": 6, "video": 0}\''
# For a model of this size, compiling takes longer than all requests.
VARIABLES = "VLLM_CPU_KVCACHE_SPACE=1 VLLM_SERVER_DEV_MODE=1 TORCHDYNAMO_DISABLE=1"
COMMAND = f"env {VARIABLES} {PYTHON} -m vllm.entrypoints.openai.api_server --dtype float32 {LIMITS}"


@pytest.mark.serving
@pytest.mark.skipif(not PYTHON, reason="needs vLLM in an environment of its own; run: make test WHAT=serving")
@pytest.mark.parametrize("adapters", [{}, {"lora": True, "lora_rank": 8, "lr": 1e-2}])
def test_the_probe_agrees_with_vllm_after_each_of_five_updates(
    adapters: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "plan_levels", lambda _: matrix.levels_of("frozenlake"))
    config = matrix.config_of("frozenlake", "mpr", str(matrix.saved(FAMILY, tmp_path / "start")))
    served = {"engine": "vllm", "updates": UPDATES, "server_command": COMMAND, "opd": 1.0}
    config = config.model_copy(update=served | adapters)
    loop.train(loop.prepare(config), tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == list(range(1, UPDATES + 1))
    for line in lines:
        print(f"probe after {line['step'] - 1} updates: {line['sync_difference']:.1e}")  # noqa: T201 - to report
        assert line["sync_difference"] < 1e-3
        assert line["generator_difference"] < 1e-3
        assert line["errors"] == line["placeholders"] == 0
        assert line["grad_norm"] > 0
    if adapters:  # without clearing the prefix cache, the server uses entries of other adapters
        monkeypatch.setattr(vllm, "reset_caches", lambda _: None)
        with pytest.raises(TrainingError, match="stale caches"):
            loop.train(loop.prepare(config), tmp_path / "stale")


# Engines of another package


SOURCE = """
from copy import deepcopy
from pivot.plugin import Generator
from pivot.training.policy_rl.engines.in_process import InProcessBackend
from pivot.models.transformers.model import Engine

class Copy(Generator):
    closed, saved, stale, heats = 0, 0, 0, set()
    answers = {"sync": 0.5}

    def __init__(self, trained):
        super().__init__(trained)
        self.copy = None

    def sync(self, save):
        save(str(self.trained.folder / ".copy"))
        Copy.saved += 1
        encoder = self.trained.scorer.encoder
        self.copy = Engine(deepcopy(self.trained.model), encoder.processor, encoder.placeholders)
        return self.answers["sync"]

    def backend(self, options):
        Copy.heats.add(options.temperature)
        if self.copy:
            pairs = zip(self.copy._model.parameters(), self.trained.model.parameters())
            Copy.stale += sum(not one.equal(other) for one, other in pairs)
        return self.answers.get("backend") or InProcessBackend(options, self.copy or self.trained.engine, batch=8)

    def close(self):
        Copy.closed += 1
        return self.answers.get("close")
"""


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a package that registers the engine ``one_copy``."""
    module = ModuleType("outside_engine")
    exec(SOURCE, module.__dict__)
    monkeypatch.setitem(sys.modules, "outside_engine", module)
    point = EntryPoint("one_copy", "outside_engine:Copy", "pivot.generators")
    installed: Callable[[str], list[EntryPoint]] = plugins.registered
    monkeypatch.setattr(plugins, "registered", lambda group: [*installed(group), *[point] * (group == "generators")])
    monkeypatch.setattr(plugins, "load", plugins.cache(plugins.load.__wrapped__))
    return module


@pytest.fixture
def outer(outside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of two updates that generates with the engine from outside."""
    return make_rl_config(_config(tmp_path, monkeypatch, updates=2).model_dump() | {"engine": "one-copy"})


def test_a_run_generates_with_an_engine_from_outside(outer: Any, outside: Any, tmp_path: Path) -> None:
    loop.train(loop.prepare(outer), tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert outside.Copy.saved == 3, "the weights after 0, 1 and 2 updates, each once"
    assert (outside.Copy.closed, outside.Copy.stale) == (1, 0)
    assert outer.validation_temperature in outside.Copy.heats and len(outside.Copy.heats) > 1
    for line in lines[1:]:
        assert line["sync_difference"] == 0.5
        assert line["generator_difference"] < 1e-5, "the engine has the weights of the last update"


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        ("sync", -0.5, r"sync\(\) = -0\.5, expected nats, 0 or more"),
        ("sync", "done", r"sync\(\) = 'done', expected nats, 0 or more"),
        ("backend", "a model", r"backend\(\) = 'a model', expected a Backend"),
        ("close", 3, r"close\(\) = 3, expected None"),
    ],
)
def test_an_answer_that_breaks_the_contract_ends_the_run(
    method: str, answer: Any, expected: str, outer: Any, outside: Any, tmp_path: Path
) -> None:
    outside.Copy.answers = {"sync": None} | {method: answer}
    with pytest.raises(PluginError, match=rf"generation engine 'one_copy' \(outside_engine:Copy.* answered {expected}"):
        loop.train(loop.prepare(outer), tmp_path / "run")


def test_an_engine_is_refused_by_name_and_when_it_is_loaded(outer: Any, outside: Any) -> None:
    with pytest.raises(TrainingError, match=r"found 'sglang', expected one of: in-process, vllm, one-copy"):
        make_rl_config(outer.model_dump() | {"engine": "sglang"})
    outside.Copy.copies_weights = "yes"
    with pytest.raises(PluginError, match=r"its copies_weights is 'yes', expected True or False"):
        loop.prepare(outer)
    outside.Copy = dict
    plugins.load.cache_clear()
    with pytest.raises(PluginError, match=r"does not fit the group pivot.generators: .* expected a subclass of"):
        loop.prepare(outer)
