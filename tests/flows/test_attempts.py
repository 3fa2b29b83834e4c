"""Settings of the attempts of a flow run, also wrong ones."""

import re

import pytest
from pivot.errors import ConfigError
from pivot.flows.attempts import Attempts, attempts
from pivot.tests.test_architecture import ROOT


def test_attempts_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attempts() == Attempts(retries=2, retry_seconds=60, hours=12)
    assert Attempts.of({"PIVOT_RUN_RETRIES": " 0 ", "PIVOT_RUN_HOURS": ""}) == Attempts(
        retries=0, retry_seconds=60, hours=12
    )
    monkeypatch.setenv("PIVOT_RUN_HOURS", "0.5")
    monkeypatch.setenv("PIVOT_RUN_RETRY_SECONDS", "540")
    assert attempts() == Attempts(retries=2, retry_seconds=540, hours=0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RETRIES", "x"),
        ("RETRIES", "-1"),
        ("RETRIES", "1.5"),
        ("RETRY_SECONDS", "541"),
        ("HOURS", "0"),
        ("HOURS", "nan"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"PIVOT_RUN_{name}: found '{value}'; Input should be .*; set another value"):
        Attempts.of({f"PIVOT_RUN_{name}": value})


def test_a_retry_begins_before_a_silent_run_is_an_alarm() -> None:
    rule = re.search(r"heartbeat_timestamp_seconds > (\d+)", (ROOT / "alerts.yaml").read_text(encoding="utf-8"))
    assert rule is not None
    longest = Attempts.model_fields["retry_seconds"].metadata[1].le
    assert longest + 60 <= float(rule[1])
