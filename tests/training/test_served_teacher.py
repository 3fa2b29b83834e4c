"""Arm sdar through a server: the same scores as in process, and a clear word about a server that cannot give them."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pivot.core.errors import ServerGoneError, TrainingError
from pivot.tests.training import matrix
from pivot.tests.training.lake import lines_of, torch
from pivot.tests.training.teacher_server import NAME, teacher_server
from pivot.training.encode import Encoder
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.config import make_rl_config
from pivot.training.policy_rl.engines.teacher import ServedTeacher
from pivot.training.policy_rl.scoring import SAMPLED, LoadedTeacher, Row, Scorer, nothing_more
from pivot.training.policy_rl.vision_cache import VisionCache

pytestmark = pytest.mark.train
FAMILY = "qwen2_5_vl"


def _rows() -> tuple[list[Row], dict[str, Any]]:
    record = matrix.tokenized("frozenlake", FAMILY)
    steps = [step for episode in record.episodes for step in episode.steps]
    return [Row(record.prompts[step.prompt_hash], step.response_token_ids or ()) for step in steps], record.frames


def _teacher(url: str, **fields: Any) -> ServedTeacher:
    return ServedTeacher(url, NAME, Encoder(matrix.player(FAMILY)[1]), **fields)


def test_it_scores_as_the_same_model_in_process_does() -> None:
    rows, frames = _rows()
    cut = [Row(row.prompt, row.tokens[:-2]) for row in rows]  # replies that were cut have no end token
    model, processor = matrix.player(FAMILY)
    loaded = LoadedTeacher(Scorer(Encoder(processor)), VisionCache(model))
    loaded.show(frames)
    with teacher_server(model, processor) as (url, _):
        teacher = _teacher(url)
        teacher.show(frames)
        for chosen in (rows, cut):
            places = [list(range(len(chosen)))]
            here, there = (each.measured(chosen, places, nothing_more) for each in (loaded, teacher))
            assert here.keys() == there.keys()
            for place, scored in here.items():
                torch.testing.assert_close(there[place][SAMPLED], scored[SAMPLED], atol=1e-4, rtol=0)
        assert teacher.unscored == 0


def test_a_reply_that_the_server_cuts_into_other_tokens_is_left_out_and_counted() -> None:
    (row, *others), frames = _rows()
    encoder = Encoder(matrix.player(FAMILY)[1])
    letters = [encoder.tokenizer(letter, add_special_tokens=False)["input_ids"][0] for letter in "up"]
    spelt = Row(row.prompt, (*letters, encoder.end))
    with_placeholder = Row(row.prompt, (encoder.placeholders[0], *row.tokens))
    with teacher_server(*matrix.player(FAMILY)) as (url, _):
        teacher = _teacher(url)
        teacher.show(frames)
        assert sorted(teacher.measured([row, spelt, with_placeholder, *others], [[0, 1, 2]], nothing_more)) == [0]
        assert teacher.unscored == 2
        with pytest.raises(TrainingError, match=r"scored none of 2 replies .*it tokenizes each of them differently"):
            teacher.measured([spelt, with_placeholder], [[0, 1]], nothing_more)


@pytest.mark.parametrize(
    ("fault", "pictures", "message"),
    [
        ("", 3, r"At most 3 image.*; the Teacher of arm sdar needs .* with 4 pictures: serve larger with vLLM"),
        (
            "no prompt_logprobs",
            8,
            "returns no log-probabilities of prompts .*or load it here by removing --teacher-url",
        ),
        ("other tokens", 8, "tokenizes .* differently from the Student, expected one vocabulary"),
    ],
)
def test_a_server_that_will_not_do_is_told_before_the_run(fault: str, pictures: int, message: str) -> None:
    with (
        teacher_server(*matrix.player(FAMILY), fault, pictures=pictures) as (url, _),
        pytest.raises(TrainingError, match=message),
    ):
        _teacher(url).check(pictures=4)


def test_a_server_that_is_gone_stops_the_run_to_be_gone_on_with() -> None:
    busy = pytest.raises(ServerGoneError, match=r"has not answered for 0 s \(last: status 503.*--resume")
    with teacher_server(*matrix.player(FAMILY), "busy") as (url, _), busy:
        _teacher(url, patience=0.1).check(pictures=1)
    with pytest.raises(ServerGoneError, match="start it again"):
        _teacher(url, patience=0.1).check(pictures=1)


def test_an_update_of_arm_sdar_goes_through_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "load_weights", lambda *_: deepcopy(matrix.player(FAMILY)))
    monkeypatch.setattr(loop, "plan_levels", lambda _: matrix.levels_of("frozenlake"))
    monkeypatch.setattr(loop, "roll_out", lambda *_: [matrix.tokenized("frozenlake", FAMILY)])
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    for part in matrix.player(FAMILY):
        part.save_pretrained(tmp_path / "model")
    config = matrix.config_of("frozenlake", "sdar", str(tmp_path / "model"))
    with teacher_server(*deepcopy(matrix.player(FAMILY))) as (url, answers):
        served = config.model_copy(update={"teacher_model": NAME, "teacher_url": url})
        loop.train(loop.prepare(served), tmp_path / "run")
    (line,) = lines_of(tmp_path / "run")
    assert line["opd_active"] == 1.0
    assert line["teacher_unscored"] == 0
    assert line["opd_gap"] != 0
    written = [body for body in answers.asked if "prompt_logprobs" not in body]
    assert len(written) == matrix.SCRIPTED, "a skill of every episode, failed or not"
    shown = [sum(part["type"] == "image_url" for part in body["messages"][0]["content"]) for body in written]
    episodes = matrix.contested("frozenlake").episodes
    assert sorted(shown) == sorted(each.num_steps + 1 for each in episodes), "every frame is a picture of its own"


def test_only_arm_sdar_has_a_served_teacher() -> None:
    with pytest.raises(TrainingError, match="found a --teacher-url, expected none"):
        make_rl_config({"env": "frozenlake", "model": "m", "arm": "mp", "teacher_url": "http://127.0.0.1:1/v1"})
    config = make_rl_config(
        {"env": "svg", "model": "m", "arm": "sdar", "teacher_model": "t", "teacher_url": "http://me:word@host:1/v1"}
    )
    assert config.teacher_url == "http://host:1/v1", "no credentials in run.json"
