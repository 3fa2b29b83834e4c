"""What a run of Stage II writes down beside its weights: a line an update, two episodes of it in full, a card."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import TrainingError
from ...rollouts.base import Episode, Status, TaskRollouts
from ...storage import Storage
from .. import checkpoint as on_disk
from .config import RlConfig
from .hindsight.analysis import Batch, Failures
from .hindsight.contexts import arm_of, hindsight_text

SAMPLES = "samples.txt"
SAMPLE_HEAD = "===== update"
PHASES = ("sync", "rollout", "analyze", "score", "update", "validate")


def append(storage: Storage, name: str, text: str) -> None:
    """Add to a text file of a run.

    Raises:
        TrainingError: it cannot be written; what is torn is forgotten when the run is gone on with.
    """
    path = storage.local_path(name)
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise TrainingError(
            f"cannot write {path}: {error.strerror or error}; free some space and run the same command with --resume"
        ) from error


def cut_samples(storage: Storage, last: int) -> None:
    """Forget the episodes of updates after ``last``, which will be made again."""
    if storage.stat(SAMPLES) is None:
        return
    text = storage.read_bytes(SAMPLES).decode(errors="replace")
    _, *parts = re.split(rf"^{SAMPLE_HEAD} (\d+)\n", text, flags=re.MULTILINE)
    told = zip(parts[::2], parts[1::2], strict=True)
    kept = [f"{SAMPLE_HEAD} {number}\n{part}" for number, part in told if int(number) <= last]
    storage.write_bytes(SAMPLES, "".join(kept).encode())


def progress(line: Mapping[str, Any], updates: int) -> str:
    """Return the line of an update for people."""
    seconds = line["seconds"]
    shown = [f"success {line['success']:.2f}", f"return {line['return']:.2f}", f"silent {line['zero_variance']:.2f}"]
    if line.get("opd_gap") is not None:
        shown.append(f"gap {line['opd_gap']:+.3f} gate {line['opd_gate']:.2f}")
    if line.get("analyzer_step_accuracy") is not None:
        shown.append(f"analyzer {line['analyzer_step_accuracy']:.2f}")
    if "validation" in line:
        shown.append(f"held-out {line['validation']['success']['value']:.2f}")
    phases = ", ".join(f"{name} {seconds[name]:.1f}" for name in PHASES if name in seconds)
    return f"update {line['step']} of {updates}: {', '.join(shown)}; {sum(seconds.values()):.1f} s ({phases})"


def sample_text(number: int, env: str, rollouts: Sequence[TaskRollouts], batch: Batch, failures: Failures) -> str:
    """Return one failure and one success of an update, as they were played, for people."""
    episodes = [episode for task in rollouts for episode in task.episodes if episode.status is Status.COMPLETE]
    lines = [f"{SAMPLE_HEAD} {number}"]
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
            lines.append(f"named: step {read.pivot_step}, {read.failure_mode}{trouble}")
        known = batch.told.get(episode.episode_id)
        if known is not None and known.parts:
            lines.append(f"the Teacher was told:\n{hindsight_text(env, known)}")
    return "\n".join(lines) + "\n"


def policy_card(config: RlConfig, storage: Storage) -> str:
    """Return the README of a checkpoint."""
    measured = [line["validation"] for line in on_disk.read_metrics(storage) if "validation" in line]
    told = arm_of(config.arm).summary
    last = (
        f"{measured[-1]['success']['value']:.3f} of {measured[-1]['success']['records']}"
        if measured
        else "not measured"
    )
    settings = "\n".join(f"| {name} | {value} |" for name, value in config.model_dump(mode="json").items())
    return (
        f"# PIVOT policy: {config.env}\n\nMade by `pivot train rl` (Stage II of PIVOT), arm `{config.arm}`: {told}. It "
        "acts as the Student alone; Analyzer and Teacher are not needed.\n\n"
        f"Success on held-out levels when last measured: {last}. Measure it again: `pivot evaluate policy`.\n\n"
        f"| setting | value |\n|---|---|\n{settings}\n"
    )
