"""The options that name models and their servers: one table for policy and teacher."""

import json
import sys
from pathlib import Path

import pytest
from pivot.cli import app
from pivot.cli.model_flags import Change, flags_of
from pivot.cli.settings import resolve_config
from pivot.datasets.config import PartConfig, RunConfig
from pivot.errors import ConfigError
from pivot.models.base import ModelOptions
from pivot.models.service import Service
from pivot.tests.flow_runs import config_of
from typer.testing import CliRunner


def test_flags_become_options_and_service_settings() -> None:
    change = Change("openai", {"model": "m", "temperature": 0.4}, {"base_url": "http://me:pw@h/v1/"})
    config = resolve_config(None, ["sokoban"], "1", [], {"policy": change})
    assert config.policy == PartConfig(
        name="openai", options={"model": "m", "temperature": 0.4}, service={"base_url": "http://h/v1"}
    )
    with pytest.raises(ConfigError, match="policy 'scripted' is no model and has no use for these settings: model"):
        resolve_config(None, ["sokoban"], "1", [], {"policy": Change(None, {"model": "m"}, {})})


def asked(command: str, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """The config that a command line comes to."""
    seen: list[RunConfig] = []
    monkeypatch.setattr(sys.modules["pivot.cli.build"], "show_plan", lambda config, *_: seen.append(config))
    result = CliRunner().invoke(app, ["build", "sokoban", "--tasks", "1", "--out", "x", "--dry-run", *command.split()])
    assert result.exit_code == 0, result.output or result.exception
    return seen[0]


def test_every_setting_of_a_model_is_an_option_of_both_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no option gives is for a config file."""
    config = asked(
        "--policy openai --model m --teacher openai --teacher-model n --base-url http://h/v1 --max-concurrency 9 "
        "--price-in 1 --temperature 0.7 --no-cache --request-timeout 5 --teacher-revision r --teacher-top-p 0.9 "
        "--teacher-temperature 0.3 --teacher-top-k 4 --teacher-max-tokens 900 --teacher-price-in 2 "
        "--teacher-price-out 3 --teacher-max-concurrency 2 --teacher-cache t.sqlite --teacher-key-variable T_KEY",
        monkeypatch,
    )
    both = {"base_url": "http://h/v1", "request_seconds": 5.0}
    assert config.policy.service == {**both, "max_concurrency": 9, "cache": "", "price_in": 1.0}
    own = {"max_concurrency": 2, "cache": "t.sqlite", "key_variable": "T_KEY", "price_in": 2.0, "price_out": 3.0}
    assert config.teacher.service == both | own
    assert config.policy.options == {"model": "m", "temperature": 0.7}
    sampling = {"temperature": 0.3, "top_p": 0.9, "top_k": 4, "max_tokens": 900}
    assert config.teacher.options == {"model": "n", "revision": "r", **sampling}
    options = {each for kind in (ModelOptions, Service) for each in kind.model_fields}
    elsewhere = {"tries", "pause_seconds", "longest_pause", "refresh", "payer"}
    assert options - elsewhere == {flag.key for role in ("policy", "teacher") for flag in flags_of(role)}


def test_a_teacher_keeps_what_a_config_file_says_of_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What both had in common follows the policy to another place."""
    both = {"cache": "c.sqlite", "max_concurrency": 8}
    part = {"name": "openai", "options": {"model": "m"}, "service": {**both, "base_url": "http://a/v1"}}
    raw = config_of(1, policy=part, teacher=part | {"service": {**both, "base_url": "http://b/v1"}})
    (tmp_path / "run.json").write_text(json.dumps({"config": raw}))
    moved = asked(f"--config {tmp_path / 'run.json'} --base-url http://c/v1 --max-concurrency 4", monkeypatch)
    assert moved.policy.service == {**both, "base_url": "http://c/v1", "max_concurrency": 4}
    assert moved.teacher.service == {**both, "base_url": "http://b/v1", "max_concurrency": 4}


def test_a_server_without_a_role_is_refused_and_one_for_the_teacher_alone_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = asked("--teacher openai --teacher-model n --base-url http://h/v1 --no-cache", monkeypatch)
    assert config.policy == PartConfig(name="scripted")
    assert config.teacher.service == {"base_url": "http://h/v1", "cache": ""}
    for wrong, name in (("--base-url http://h/v1", "base_url"), ("--teacher openai --price-in 1", "price_in")):
        result = CliRunner().invoke(app, ["build", "sokoban", "--out", "x", *wrong.split()])
        assert f"policy 'scripted' is no model and has no use for these settings: {name}" in str(result.exception)
