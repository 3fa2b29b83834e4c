"""Tools around a model: the line that serves it, the check of a server, and optional packages by name."""

import asyncio
import contextlib
import json
import re
import shlex
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path
from typing import Any

import pivot
import pytest
from packaging.requirements import Requirement
from pivot.cli import app
from pivot.cli.doctor import server_facts
from pivot.cli.serving import Gpu, gpus, serve_line, tensor_parallel
from pivot.core.errors import ConfigError, PluginError, ServerGoneError
from pivot.datasets.store.config import make_config
from pivot.datasets.store.run import Run
from pivot.models.extras import look_for, need
from pivot.models.openai.failures import connection_failure
from pivot.models.service import Service
from pivot.tests.flow_runs import config_of
from pivot.tests.models.chat_server import MODEL, part, served
from typer.testing import CliRunner

H100 = Gpu("H100", 80.0)
SMALL = Gpu("RTX 4090", 24.0)


# serve-command


@pytest.mark.parametrize(
    ("model", "machine", "spread"),
    [
        ("a/m-8B", [H100] * 8, 1),
        ("a/m-8B", [SMALL] * 4, 2),
        ("a/m-32B", [H100] * 4, 2),
        ("a/m-72B", [H100] * 8, 4),
        ("a/m-72B", [H100], 1),  # does not fit on one GPU
        ("a/m", [SMALL] * 2, 1),
        ("runs/checkpoint-250", [SMALL] * 2, 1),  # a number without a unit does not count
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", [SMALL] * 4, 4),  # all experts are loaded
        ("some/model-0.5b", [SMALL] * 4, 1),
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
        on_cpu = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "a/m-8B"]
        start = ["vllm", "serve", "a/m-8B"] if machine else on_cpu
        assert words[: len(start)] == start
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
    """A server with all abilities."""
    reply: dict[str, Any] = {"text": '{"colour": "green"}' if body.get("response_format") else "yes"}
    if body.get("logprobs"):
        reply["logprobs"] = [-0.5, -0.25]
    if body.get("return_token_ids"):
        reply["token_ids"] = [1, 2]
    return reply


def facts_of(url: str, model: str = MODEL) -> dict[str, str]:
    """Return the facts that doctor shows about a server."""
    return asyncio.run(server_facts(model, Service(base_url=url, cache="", patience_seconds=0.1)))


def test_doctor_shows_what_a_server_sends_and_refuses_one_that_a_run_cannot_use() -> None:
    with served(able) as server:
        facts = facts_of(server.url)
        assert (facts["address"], facts["log-probabilities"]) == (server.url, "with token ids")
        assert facts["checkpoint"].startswith("not named: name it with --revision")
        with pytest.raises(ConfigError, match=MODEL):
            facts_of(server.url, "other")
        with pytest.raises(ConfigError, match=f"use --base-url {server.url}"):
            facts_of(server.url.removesuffix("/v1"))
    with served(lambda body: {"text": "yes"}) as server:
        assert facts_of(server.url)["log-probabilities"].startswith("none: ")
    with pytest.raises(ServerGoneError, match="serve-command"):
        facts_of(server.url)


@pytest.mark.parametrize("answer", [(404, {}), (500, {}), (200, ["no list"])], ids=str)
def test_doctor_and_builds_accept_a_server_without_a_list_of_models(answer: tuple[int, Any], tmp_path: Path) -> None:
    with served(lambda body: able(body) | {"text": "<action>up</action>"}) as server:
        server.list_answer = answer
        assert facts_of(server.url)["log-probabilities"] == "with token ids"
        assert pivot.build(config_of({"frozenlake": 1}, rollouts=2, policy=part(server)), tmp_path / "store").is_whole


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening


def serve_nobody(listening: socket.socket, context: ssl.SSLContext | None = None) -> str:
    """Close every connection, after a TLS handshake or a refusal in plain HTTP; return host and port."""

    def close_all() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listening.accept()[0]
                with contextlib.suppress(OSError):
                    if context is None:
                        connection.recv(4096)
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    else:
                        connection = context.wrap_socket(connection, server_side=True)
                connection.close()

    threading.Thread(target=close_all, daemon=True).start()
    return f"127.0.0.1:{listening.getsockname()[1]}"


def failure_at(url: str) -> tuple[str, str]:
    """Return doctor's message about a server that cannot be reached, and its advice."""
    with pytest.raises((ServerGoneError, ConfigError)) as caught:
        facts_of(url)
    detail, _, advice = str(caught.value).partition("; ")
    return detail.removeprefix(f"no server answers at {url} (").removesuffix(")"), advice


def test_a_failed_connection_says_what_happened(listener: socket.socket, tmp_path: Path) -> None:
    assert failure_at("http://no-such-host.invalid/v1") == (
        "the host name 'no-such-host.invalid' was not found: Name or service not known",
        "check the host name in --base-url",
    )
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        what, advice = failure_at(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
    assert what == "connection refused: nothing listens at that port"
    assert "serve-command" in advice
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 1 -subj /CN=x"
    subprocess.run(shlex.split(request), check=True, capture_output=True)
    context.load_cert_chain(certificate, key)
    place = serve_nobody(listener, context)
    what, advice = failure_at(f"https://{place}/v1")
    assert what == "its certificate is not valid: self-signed certificate"
    assert "SSL_CERT_FILE" in advice
    what, advice = failure_at(f"http://{place}/v1")
    assert what == "it closed the connection without an answer"
    assert "https://" in advice


def test_https_against_http_is_named(listener: socket.socket) -> None:
    what, advice = failure_at(f"https://{serve_nobody(listener)}/v1")
    assert what.startswith("no HTTPS is spoken there: ")
    assert advice == "try http:// in --base-url"


def test_a_connection_that_takes_too_long_is_named() -> None:
    waiting = TimeoutError("nobody there")
    try:
        raise OSError("aiohttp's") from waiting
    except OSError as error:
        failure = connection_failure(error, "http://10.0.0.1/v1")
    assert failure is not None
    assert (failure.what, failure.is_setup) == ("no connection within 10 s", False)


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
    """Return a distribution and all its dependencies, by the metadata of the installed ones."""
    if (name, extras) in seen:
        return set()
    seen.add((name, extras))
    names = {name}
    try:
        requirements = distribution(name).requires or []
    except PackageNotFoundError:
        return names  # an extra that is not installed, or for another system
    for text in requirements:
        need_ = Requirement(text)
        if need_.marker is None or any(need_.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            names |= pulled(plain(need_.name), frozenset(need_.extras), seen)
    return names


def test_the_base_install_pulls_no_model_packages() -> None:
    base = pulled("pivot-vlm", frozenset(), set())
    assert len(base) > 50  # the search follows dependencies
    assert not base & HEAVY


def test_a_missing_extra_is_named_with_its_install_line() -> None:
    for call in (need, look_for):
        with pytest.raises(PluginError, match=re.escape("pip install 'pivot-vlm[openai]'")):
            call("no_such_package_at_all", "openai")


@pytest.mark.parametrize("name", ["transformers", "openai"])
def test_a_model_whose_extra_is_missing_is_refused_before_the_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pivot.models.extras.find_spec", lambda module: None)
    for role in ("policy", "teacher"):
        part = {"name": name, "options": {"model": "some/model"}}
        with pytest.raises(PluginError, match=re.escape(f"pip install 'pivot-vlm[{name}]'")):
            Run(make_config(config_of(1, **{role: part}))).check_parts()
        with pytest.raises(ConfigError, match="no model named"):
            Run(make_config(config_of(1, **{role: {"name": name}})))


@pytest.mark.parametrize("value", [5.0, True, "-0.5"])
def test_numbers_that_are_no_log_probabilities_are_refused(value: Any) -> None:
    """Probabilities above one, flags and texts: doctor reports them as missing, and steps are stored without."""
    with served(lambda body: able(body) | {"logprobs": [-0.5, value]}) as server:
        assert facts_of(server.url)["log-probabilities"].startswith("none: ")
