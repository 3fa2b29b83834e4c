"""What stands around a model: the line that serves it, the check of a server, and optional packages by name."""

import json
import re
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from pivot.cli import app
from pivot.cli.server_check import check_server
from pivot.cli.serving import Gpu, billions, gpus, serve_line, tensor_parallel
from pivot.datasets.config import make_config
from pivot.datasets.run import Run
from pivot.errors import ConfigError, PluginError
from pivot.models.extras import install_line, look_for, need
from pivot.tests.models.chat_server import MODEL, served
from typer.testing import CliRunner

H100 = Gpu("H100", 80.0)
SMALL = Gpu("RTX 4090", 24.0)


# serve-command


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("Qwen/Qwen2.5-VL-3B-Instruct", 3),
        ("Qwen/Qwen3-VL-2B-Instruct", 2),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", 30),
        ("some/model-0.5b", 0.5),
        ("runs/checkpoint-250", None),
        ("my/vlm", None),
    ],
)
def test_the_size_is_read_from_the_name(model: str, size: float | None) -> None:
    assert billions(model) == size


@pytest.mark.parametrize(
    ("model", "machine", "spread"),
    [
        ("a/m-8B", [H100] * 8, 1),
        ("a/m-8B", [SMALL] * 4, 2),
        ("a/m-32B", [H100] * 4, 2),
        ("a/m-72B", [H100] * 8, 4),
        ("a/m-72B", [H100], 1),  # does not fit, and there is no second one
        ("a/m", [SMALL] * 2, 1),
        ("a/m-3B", [], 1),
    ],
)
def test_a_model_is_spread_over_as_few_gpus_as_hold_it(model: str, machine: list[Gpu], spread: int) -> None:
    assert tensor_parallel(model, machine) == spread


def flags_of(words: list[str]) -> dict[str, str]:
    return {word: value for word, value in pairwise(words) if word.startswith("--")}


def test_the_line_decides_the_data_alike_on_every_machine() -> None:
    for machine in ([], [SMALL], [H100] * 8):
        words = serve_line("a/m-8B", machine, 9000, "short")
        flags = flags_of(words)
        assert words[:3] == ["vllm", "serve", "a/m-8B"]
        assert (flags["--served-model-name"], flags["--port"]) == ("short", "9000")
        assert (flags["--generation-config"], flags["--logprobs-mode"]) == ("vllm", "raw_logprobs")
        assert json.loads(flags["--limit-mm-per-prompt"]) == {"image": 4, "video": 0}
        assert ("--gpu-memory-utilization" in flags) == bool(machine) == ("--no-enable-chunked-prefill" not in words)
    assert flags_of(serve_line("a/m-8B", [H100] * 8))["--data-parallel-size"] == "8"
    assert flags_of(serve_line("a/m-72B", [H100] * 8))["--tensor-parallel-size"] == "4"


def test_gpus_are_those_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100, SXM, 81559'\necho 'NVIDIA H100, SXM, 81559'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert [(gpu.name, round(gpu.memory_gib)) for gpu in gpus()] == [("NVIDIA H100, SXM", 80)] * 2
    result = CliRunner().invoke(app, ["serve-command", "a/m 8B", "--port", "8123"])
    assert result.exit_code == 0
    words = shlex.split(result.stdout)
    assert words[2] == "a/m 8B" and flags_of(words)["--data-parallel-size"] == "2"
    assert "pivot doctor --base-url http://localhost:8123/v1" in result.stderr
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert gpus() == []


# doctor


def able(body: dict[str, Any]) -> dict[str, Any]:
    """A server that has everything."""
    schema = body.get("response_format")
    reply: dict[str, Any] = {"text": '{"colour": "green"}' if schema else "yes"}
    if body.get("logprobs"):
        reply["logprobs"] = [-0.5, -0.25]
    if body.get("return_token_ids"):
        reply["token_ids"] = [1, 2]
    return reply


def states(server: Any, model: str = MODEL) -> dict[str, str]:
    return {each.check: each.state for each in check_server(server.url, model)}


def test_doctor_tells_what_a_server_lacks() -> None:
    with served(able) as server:
        found = {each.check: each for each in check_server(server.url, MODEL)}
        # This server counts every prompt alike, as one that drops pictures would.
        assert {name: each.state for name, each in found.items()} == {
            "reachable": "ok",
            "model present": "ok",
            "text answered": "ok",
            "pictures seen": "broken",
            "log-probabilities": "ok",
            "structured output": "ok",
        }
        assert "dropped" in found["pictures seen"].detail
        assert all(each.advice for each in found.values() if each.state != "ok")
        other = check_server(server.url, "other")
        assert [each.state for each in other] == ["ok", "broken"]
        assert MODEL in other[-1].detail
    with served(lambda body: {"text": "yes"}) as server:
        assert (states(server)["log-probabilities"], states(server)["structured output"]) == ("missing", "missing")
    with served(able, unknown_fields=frozenset({"logprobs", "response_format"})) as server:
        assert (states(server)["log-probabilities"], states(server)["structured output"]) == ("missing", "missing")
    with served(able, fault=lambda key, tried: "500") as server:
        assert list(states(server).values()) == ["ok", "ok", "broken"]
    gone = server.url
    assert [each.state for each in check_server(gone, MODEL)] == ["broken"]
    assert "serve-command" in check_server(gone, MODEL)[0].advice


def test_doctor_says_what_is_wrong_and_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with served(able, key="another") as server:
        address = server.url.replace("//", "//me:hidden@")
        result = CliRunner().invoke(app, ["doctor", "--base-url", address, "--model", MODEL])
    assert isinstance(result.exception, ConfigError)
    assert "OPENAI_API_KEY" in str(result.exception)
    assert "sk-very-secret" not in result.output + str(result.exception)
    assert "hidden" not in result.output + str(result.exception)
    with pytest.raises(ConfigError, match="--model"):
        CliRunner().invoke(app, ["doctor", "--base-url", "http://localhost:1/v1"], catch_exceptions=False)


# Optional packages

HEAVY = {"torch", "torchvision", "transformers", "vllm", "openai", "trl", "accelerate", "peft", "dreamsim"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pulled(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> set[str]:
    """Everything that installing a distribution brings, by the metadata of what is installed here."""
    if (name, extras) in seen:
        return set()
    seen.add((name, extras))
    found = {name}
    try:
        wanted = distribution(name).requires or []
    except PackageNotFoundError:
        return found  # an extra that is not installed here, or another system's
    for text in wanted:
        need_ = Requirement(text)
        if need_.marker is None or any(need_.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            found |= pulled(plain(need_.name), frozenset(need_.extras), seen)
    return found


def test_the_base_install_pulls_no_model_packages() -> None:
    base = pulled("pivot-vlm", frozenset(), set())
    assert len(base) > 50  # the walk goes somewhere
    assert not base & HEAVY


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("openai", {"openai"}),
        ("transformers", {"torch", "transformers"}),
        ("vllm", {"vllm"}),
        ("train", {"torch", "transformers", "trl"}),
    ],
)
def test_extras_bring_their_packages(extra: str, packages: set[str]) -> None:
    requires = [Requirement(text) for text in distribution("pivot-vlm").requires or []]
    brought = {
        plain(each.name) for each in requires if each.marker is not None and each.marker.evaluate({"extra": extra})
    }
    assert packages <= brought


def test_a_missing_extra_is_named_with_its_install_line() -> None:
    for call in (need, look_for):
        with pytest.raises(PluginError, match=re.escape("pip install 'pivot-vlm[openai]'")):
            call("no_such_package_at_all", "openai")
    assert install_line("vllm") == "pip install 'pivot-vlm[vllm]'"


@pytest.mark.parametrize("name", ["transformers", "vllm"])
def test_a_model_whose_extra_is_missing_is_refused_before_the_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(module: str) -> None:
        return None

    monkeypatch.setattr("pivot.models.extras.find_spec", nothing)
    environments = {"sokoban": {"tasks": 1, "settings": {}}}
    for role in ("policy", "teacher"):
        part = {"name": name, "options": {"model": "some/model"}}
        with pytest.raises(PluginError, match=re.escape(f"pip install 'pivot-vlm[{name}]'")):
            Run(make_config({"environments": environments, role: part})).check_parts()
        with pytest.raises(ConfigError, match="no model named"):
            Run(make_config({"environments": environments, role: {"name": name}}))


@pytest.mark.parametrize("value", [5.0, True, "-0.5"])
def test_numbers_that_are_no_log_probabilities_are_refused(value: Any) -> None:
    """Probabilities above one, flags and texts: doctor reports them as missing, and steps are stored without."""
    with served(lambda body: able(body) | {"logprobs": [-0.5, value]}) as server:
        assert states(server)["log-probabilities"] == "missing"
