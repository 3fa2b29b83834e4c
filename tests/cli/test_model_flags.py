"""The options that name models and their servers: one table for policy and teacher."""

import json
from pathlib import Path

import pytest
from pivot.cli.model_flags import FLAGS, SET_BY_BUILD
from pivot.core.errors import ConfigError
from pivot.datasets.store.config import PartConfig, RunConfig
from pivot.models.base import ModelOptions
from pivot.models.service import Service
from pivot.tests.cli.command_line import run_config
from pivot.tests.flow_runs import config_of


def test_flags_become_options_and_service_settings() -> None:
    config = run_config("sokoban --policy openai --model m --temperature 0.4 --base-url http://me:pw@h/v1/")
    assert config.policy == PartConfig(
        name="openai", options={"model": "m", "temperature": 0.4}, service={"base_url": "http://h/v1"}
    )
    with pytest.raises(ConfigError, match="--model: policy 'scripted' is not a model, so it cannot use this option"):
        run_config("sokoban --model m")


def asked(command: str) -> RunConfig:
    """Return the config that a command line comes to."""
    return run_config(f"sokoban --tasks 1 {command}")


def test_a_writer_has_every_setting_and_follows_the_server_of_the_policy() -> None:
    config = asked(
        "--policy openai --model m --writer openai --writer-model n --base-url http://h/v1 --max-concurrency 9 "
        "--price-in 1 --temperature 0.7 --no-cache --request-timeout 5 --writer-set revision=r --writer-set top_p=0.9 "
        "--writer-set temperature=0.3 --writer-set top_k=4 --writer-set max_tokens=900 --writer-service price_in=2 "
        "--writer-service price_out=3 --writer-service max_concurrency=2 --writer-service cache=t.sqlite "
        "--writer-service key_variable=T_KEY"
    )
    both = {"base_url": "http://h/v1", "request_seconds": 5.0}
    assert config.policy.service == {**both, "max_concurrency": 9, "cache": "", "price_in": 1.0}
    own = {"max_concurrency": 2, "cache": "t.sqlite", "key_variable": "T_KEY", "price_in": 2.0, "price_out": 3.0}
    assert config.teacher.service == both | own
    assert config.policy.options == {"model": "m", "temperature": 0.7}
    sampling = {"temperature": 0.3, "top_p": 0.9, "top_k": 4, "max_tokens": 900}
    assert config.teacher.options == {"model": "n", "revision": "r", **sampling}
    options = {each for kind in (ModelOptions, Service) for each in kind.model_fields}
    assert options - {*SET_BY_BUILD} == {flag.key for flag in FLAGS}


def test_a_teacher_keeps_what_a_config_file_says_of_it_alone(tmp_path: Path) -> None:
    """A policy flag also changes the teacher's setting if both were equal; the teacher's own setting stays."""
    both = {"cache": "c.sqlite", "max_concurrency": 8}
    part = {"name": "openai", "options": {"model": "m"}, "service": {**both, "base_url": "http://a/v1"}}
    raw = config_of(1, policy=part, teacher=part | {"service": {**both, "base_url": "http://b/v1"}})
    (tmp_path / "run.json").write_text(json.dumps({"config": raw}))
    moved = asked(f"--config {tmp_path / 'run.json'} --base-url http://c/v1 --max-concurrency 4")
    assert moved.policy.service == {**both, "base_url": "http://c/v1", "max_concurrency": 4}
    assert moved.teacher.service == {**both, "base_url": "http://b/v1", "max_concurrency": 4}


def test_a_server_without_a_role_is_refused_and_one_for_the_teacher_alone_is_not() -> None:
    config = asked("--writer openai --writer-model n --base-url http://h/v1 --no-cache")
    assert config.policy == PartConfig(name="scripted")
    assert config.teacher.service == {"base_url": "http://h/v1", "cache": ""}
    for wrong, name in (("--base-url http://h/v1", "--base-url"), ("--writer openai --price-in 1", "--price-in")):
        with pytest.raises(
            ConfigError, match=f"{name}: policy 'scripted' is not a model, so it cannot use this option"
        ):
            asked(wrong)
