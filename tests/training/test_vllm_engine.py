"""The engine of a server: whole runs over a stand-in, and a probe that finds a server with wrong weights.

The stand-in is a chat server around the same kind of model; ``make test WHAT=serving`` does the same with vLLM itself.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from pivot.core.errors import ServerGoneError, TrainingError
from pivot.tests.flow_runs import clean_environment
from pivot.tests.training import matrix
from pivot.tests.training.lake import lines_of, save_grammatical, torch
from pivot.tests.training.model_server import model_server
from pivot.training.encode import Encoder
from pivot.training.loading import add_adapters, load_adapters
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.engines import vllm
from pivot.training.policy_rl.engines.probe import Probe
from pivot.training.policy_rl.engines.vllm import BASE, CACHES, NAME, ServedModel, Server, server_words
from pivot.training.policy_rl.levels import first_turns

pytestmark = pytest.mark.train
FAMILY = "qwen2_5_vl"


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
    matrix.share(monkeypatch, "frozenlake", FAMILY)
    monkeypatch.setattr(vllm, "Server", StandIn)
    monkeypatch.chdir(tmp_path)
    config = matrix.config_of("frozenlake", "mp", str(matrix.saved(FAMILY, tmp_path / "model")))
    return config.model_copy(update={"engine": "vllm", "updates": 3, "validation_episodes": 4})


def test_a_run_generates_with_servers_that_get_every_update(config: Any) -> None:
    loop.train(loop.prepare(config), Path("run"))
    before, *lines = lines_of(Path("run"))
    assert "validation" in before
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["sync_difference"] < 1e-5
        assert line["generator_difference"] < 1e-5
        assert line["errors"] == line["placeholders"] == 0
        assert line["grad_norm"] > 0


@pytest.mark.parametrize(
    ("fields", "figure"),
    [
        ({"arm": "witness"}, "loss_correction"),
        ({"arm": "dpo_pivot"}, "loss_correction"),
        ({"arm": "oracle", "opd_objective": "distribution"}, "loss_opd"),
        ({"arm": "vanilla_grpo", "credit": "slack"}, "credit"),
    ],
)
def test_what_learns_from_the_plan_learns_with_servers_too(
    fields: dict[str, Any], figure: str, config: Any, tmp_path: Path
) -> None:
    loop.train(loop.prepare(config.model_copy(update={**fields, "updates": 2, "validation_episodes": 0})), Path("run"))
    lines = lines_of(Path("run"))
    assert [line["step"] for line in lines] == [1, 2]
    assert any(line[figure] != 0 for line in lines)
    assert all(line["grad_norm"] > 0 and line["generator_difference"] < 1e-5 for line in lines)


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
