"""The log files of a run of Stage II: metrics, sample episodes, and the model card."""

import re
from collections.abc import Mapping
from typing import Any

from ...core.storage import Storage
from ...labeling.hindsight import hindsight_text
from ...rollouts.base import Episode, Status
from .. import checkpoint as on_disk
from .config import RlConfig
from .figures import Update
from .hindsight.contexts import arm_of

SAMPLES = "samples.txt"
SAMPLE_HEAD = "===== update"
SHOWN = {"success": "success", "return": "return", "silent": "zero_variance"}
"""Figures of every arm in the message about an update, by their names there."""
PHASES = ("sync", "rollout", "analyze", "score", "update", "validate")


def append(storage: Storage, name: str, text: str) -> None:
    """Append to a text file of a run.

    Raises:
        TrainingError: the file cannot be written; resuming the run removes an incomplete line.
    """
    path = storage.local_path(name)
    with on_disk.writing(path), path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def cut_samples(storage: Storage, last: int) -> None:
    """Remove the sample episodes of updates after ``last``, which a resumed run repeats."""
    if storage.stat(SAMPLES) is None:
        return
    text = storage.read_bytes(SAMPLES).decode(errors="replace")
    _, *parts = re.split(rf"^{SAMPLE_HEAD} (\d+)\n", text, flags=re.MULTILINE)
    samples = zip(parts[::2], parts[1::2], strict=True)
    kept = [f"{SAMPLE_HEAD} {number}\n{text}" for number, text in samples if int(number) <= last]
    storage.write_bytes(SAMPLES, "".join(kept).encode())


def progress(line: Mapping[str, Any], updates: int, left: float) -> str:
    """Return the message about an update; ``left`` are the seconds that the remaining updates may take."""
    seconds = line["seconds"]
    shown = [f"{short} {line[name]:.2f}" for short, name in SHOWN.items()]
    if line.get("opd_gap") is not None:
        shown.append(f"gap {line['opd_gap']:+.3f} gate {line['opd_gate']:.2f}")
    if line.get("teacher_informed") is not None:
        shown.append(f"informed {line['teacher_informed']:+.3f}")
    if line.get("analyzer_step_accuracy") is not None:
        shown.append(f"analyzer {line['analyzer_step_accuracy']:.2f}")
    if "validation" in line:
        shown.append(f"held-out {line['validation']['success']['value']:.2f}")
    phases = ", ".join(f"{name} {seconds[name]:.1f}" for name in PHASES if name in seconds)
    speed = f"{line['tokens_per_second']:.0f} tokens/s, {on_disk.duration(left)} left"
    took = f"{sum(seconds.values()):.1f} s ({phases})"
    return f"update {line['step']} of {updates}: {', '.join(shown)}; {took}; {speed}"


def sample_text(number: int, env: str, made: Update) -> str:
    """Return one failure and one success of an update, step by step, for people."""
    failures, lines = made.failures, [f"{SAMPLE_HEAD} {number}"]
    episodes = [each for task in made.rollouts for each in task.episodes if each.status is Status.COMPLETE]
    for failed in (True, False):
        episode: Episode | None = next((each for each in episodes if bool(each.failed) is failed), None)
        if episode is None:
            continue
        lines.append(
            f"--- {'failure' if failed else 'success'}: {episode.episode_id}, return {episode.episode_return:g}"
        )
        lines += [f"step {step.t}: {step.response!r} -> {step.action}, {step.reward:+g}" for step in episode.steps]
        verdict, read = failures.verdicts.get(episode.episode_id), failures.readings.get(episode.episode_id)
        if verdict is not None:
            lines.append(f"solver: step {verdict.pivot_step}, {verdict.failure_mode}")
        if read is not None:
            trouble = f" ({read.problem}: {read.detail})" if read.problem else ""
            lines.append(f"analyzer: step {read.pivot_step}, {read.failure_mode}{trouble}")
        hindsight = made.samples.hindsight.get(episode.episode_id)
        if hindsight is not None and hindsight.parts:
            lines.append(f"context of the Teacher:\n{hindsight_text(env, hindsight)}")
    return "\n".join(lines) + "\n"


def policy_card(config: RlConfig, storage: Storage, success: Mapping[str, Any] | None = None) -> str:
    """Return the README of a checkpoint, by default with the last ``success`` in the metrics."""
    measured = [line for line in on_disk.read_metrics(storage) if "validation" in line]
    success = success or (measured[-1]["validation"]["success"] if measured else None)
    last = f"{success['value']:.3f} of {success['records']}" if success else "not measured"
    settings = "\n".join(f"| {name} | {value} |" for name, value in config.model_dump(mode="json").items())
    arm = arm_of(config.arm).summary
    return (
        f"# PIVOT policy: {config.env}\n\nMade by `pivot train rl` (Stage II of PIVOT), arm `{config.arm}`: {arm}. "
        "It acts as the Student alone; Analyzer and Teacher are not needed.\n\n"
        f"Success on held-out levels when last measured: {last}. Measure it again: `pivot evaluate policy`.\n\n"
        f"| setting | value |\n|---|---|\n{settings}\n"
    )
