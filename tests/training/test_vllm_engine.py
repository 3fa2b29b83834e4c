"""The engine of servers: whole runs over a stand-in, and a probe that finds servers which do not hold the weights.

The stand-in is a chat server around the same kind of model; ``make test-serving`` does the same with vLLM itself.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pivot.errors import ServerGoneError, TrainingError
from pivot.tests.training import matrix
from pivot.tests.training.lake import lines_of, torch
from pivot.tests.training.teacher_server import teacher_server
from pivot.training import loop
from pivot.training.encode import Encoder
from pivot.training.engines import Probe, Servers
from pivot.training.engines.servers import server_words
from pivot.training.play import first_turns

pytestmark = pytest.mark.train
FAMILY = "qwen2_5_vl"


class StandIns(Servers):
    """Servers in this process, which load the weights that they are given, or some of them."""

    stale: tuple[str, ...] = ()
    """Parts of names of the weights that stay what they were."""

    def __init__(self, *_: Any) -> None:
        self.model, processor = deepcopy(matrix.player(FAMILY))
        self._opened = [teacher_server(self.model, processor) for _ in range(2)]
        self._urls = [each.__enter__()[0] for each in self._opened]
        self.restarts = 0

    @property
    def urls(self) -> list[str]:
        """Of both."""
        return self._urls

    def restart(self, folder: Path) -> None:
        """Load what is not stale."""
        self.restarts += 1
        saved = type(self.model).from_pretrained(folder).state_dict()
        kept = self.model.state_dict()
        new = {name: value for name, value in saved.items() if not any(part in name for part in self.stale)}
        if "lm_head" in self.stale:  # what a vLLM that reloads does to tied embeddings
            self.model.lm_head.weight = torch.nn.Parameter(kept["lm_head.weight"].clone())
        self.model.load_state_dict(kept | new)

    def close(self) -> None:
        """End both."""
        for each in self._opened:
            each.__exit__(None, None, None)
        self._opened = []


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose servers are stand-ins."""
    monkeypatch.setattr(loop, "load_weights", lambda *_: deepcopy(matrix.player(FAMILY)))
    monkeypatch.setattr(loop, "plan_levels", lambda _: matrix.levels_of("frozenlake"))
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    monkeypatch.setattr(loop, "Servers", StandIns)
    for part in matrix.player(FAMILY):
        part.save_pretrained(tmp_path / "model")
    config = matrix.config_of("frozenlake", "mp", str(tmp_path / "model"))
    return config.model_copy(update={"engine": "vllm", "updates": 3, "validation_episodes": 4})


@pytest.mark.parametrize("shard", [False, True])
def test_a_run_generates_with_servers_that_get_every_update(
    shard: bool, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if shard:
        request.getfixturevalue("group_of_one")
        monkeypatch.setattr(loop, "check_processes", lambda *_, **__: None)
    loop.train(loop.prepare(config.model_copy(update={"shard": shard})), tmp_path / "run")
    before, *lines = lines_of(tmp_path / "run")
    assert "validation" in before
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["sync_difference"] < 1e-5
        assert line["generator_difference"] < 1e-5
        assert line["errors"] == line["placeholders"] == 0
        assert line["grad_norm"] > 0


@pytest.mark.parametrize("stale", ["visual", "lm_head", "layers"])
def test_servers_that_hold_other_weights_stop_the_run(
    stale: str, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIns, "stale", (stale,))
    with pytest.raises(TrainingError, match=r"differ from the trainer's by .* expected at most 0\.001: it holds other"):
        loop.train(loop.prepare(config), tmp_path / "run")
    assert [line["step"] for line in lines_of(tmp_path / "run")] == [0, 1], "the first weights are the servers' own"


def test_a_probe_asks_about_pictures_and_equal_sides_pass() -> None:
    model, processor = matrix.player(FAMILY)
    turns = first_turns(matrix.levels_of("sokoban"), 3)
    assert len({turn.prompt.prompt_hash for turn in turns}) == 3
    probe = Probe(Encoder(processor), turns, half=False)
    with teacher_server(deepcopy(model), processor) as (url, answers):
        assert probe.check(model, [url]) < 1e-5
    assert all("data:image" in str(body["messages"]) for body in answers.asked)
    assert all(body["logit_bias"] for body in answers.asked), "no picture token is drawn"


def test_a_server_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    servers = Servers("python -c 'raise SystemExit(\"no such device\")'", (), tmp_path / "logs")
    with pytest.raises(ServerGoneError, match=r"(?s)did not start; see .*0\.log.*no such device"):
        servers.restart(tmp_path)
    assert servers.urls == []
    with pytest.raises(ServerGoneError, match="--server-command"):
        Servers("/no/such/vllm", (), tmp_path / "logs").restart(tmp_path)


def test_a_command_line_keeps_what_the_user_gave(tmp_path: Path) -> None:
    words = server_words("vllm serve --limit-mm-per-prompt '{\"image\": 9}'", tmp_path, 8123)
    assert words[:4] == ["vllm", "serve", "--limit-mm-per-prompt", '{"image": 9}']
    assert words[words.index("--logprobs-mode") + 1] == "processed_logprobs"
