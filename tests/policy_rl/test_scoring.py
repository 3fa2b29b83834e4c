"""The scorer of Student, reference and Teacher: it uses pictures, encodes them once, and ignores placeholders."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
pytest.importorskip("transformers")

from pivot.benchmarks.learning.player import FAMILIES, make_player  # noqa: E402
from pivot.core import plugins  # noqa: E402
from pivot.core.identity import digest  # noqa: E402
from pivot.core.messages import EncodedFrame, PromptMessages  # noqa: E402
from pivot.labeling.hindsight import teacher_prompt  # noqa: E402
from pivot.models.base import ChatRequest, Sampling, image_ids  # noqa: E402
from pivot.models.transformers.model import Engine  # noqa: E402
from pivot.tests.policy_rl.failures import failures_of, frame_ids  # noqa: E402
from pivot.training.analyzer import Reading  # noqa: E402
from pivot.training.encode import Encoder  # noqa: E402
from pivot.training.policy_rl import loop  # noqa: E402
from pivot.training.policy_rl.config import make_rl_config  # noqa: E402
from pivot.training.policy_rl.extensions.objectives import objective_of  # noqa: E402
from pivot.training.policy_rl.figures import token_figures  # noqa: E402
from pivot.training.policy_rl.generation import TrainedEngine  # noqa: E402
from pivot.training.policy_rl.hindsight.contexts import ARMS, hindsight_of  # noqa: E402
from pivot.training.policy_rl.learner import score_turns  # noqa: E402
from pivot.training.policy_rl.scoring import SAMPLED, Row, Scorer, TurnSample, entropy, micro_batches  # noqa: E402
from pivot.training.policy_rl.weights import ByteCache, ModelWeights, VisionCache  # noqa: E402

pytestmark = pytest.mark.train
torch.set_num_threads(1)


@cache
def _player(family: str = FAMILIES[0]) -> tuple[Any, Encoder]:
    texts = [
        part["text"]
        for env in ("frozenlake", "sokoban")
        for task, episode in failures_of(env)
        for step in episode.steps
        for part in task.prompts[step.prompt_hash].messages[-1]["content"]
        if part["type"] == "text"
    ]
    model, processor = make_player(texts, family=family)
    return model.eval(), Encoder(processor)


def _reply(encoder: Encoder, action: str) -> tuple[int, ...]:
    return tuple(encoder.reply_tokens(f"<think></think><action>{action}</action>"))


def _scorer(encoder: Encoder, env: str = "frozenlake") -> tuple[Scorer, Any, Any]:
    rollouts, episode = next(failures_of(env))
    scorer = Scorer(encoder)
    scorer.pictures = dict(rollouts.frames)
    return scorer, rollouts, episode


def _student_rows(rollouts: Any, episode: Any, encoder: Encoder) -> list[Row]:
    return [Row(rollouts.prompts[step.prompt_hash], _reply(encoder, "up")) for step in episode.steps]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_equals_the_log_softmax_of_the_model_alone(family: str) -> None:
    model, encoder = _player(family)
    scorer, rollouts, episode = _scorer(encoder)
    rows = _student_rows(rollouts, episode, encoder)[:3]
    rows[1] = replace(rows[1], tokens=_reply(encoder, "down and then some more"))
    with torch.no_grad():
        together = scorer(model, rows).split([len(row.tokens) for row in rows])
        for row, scored in zip(rows, together, strict=True):
            batch = encoder.join([scorer.encoded(row.prompt)], [row.tokens])
            labels = batch.pop("labels")[0]
            scores = model(**batch).logits[0].index_fill(1, torch.tensor(encoder.placeholders), float("-inf"))
            places = (labels != -100).nonzero().squeeze(1)
            expected = scores[places - 1].log_softmax(-1).gather(1, labels[places, None]).squeeze(1)
            torch.testing.assert_close(scored, expected, atol=2e-6, rtol=0)


def test_sampled_tokens_hold_no_placeholder_and_without_the_mask_some_do() -> None:
    model, encoder = _player()
    _, rollouts, episode = _scorer(encoder)
    prompt = rollouts.prompts[episode.steps[0].prompt_hash]

    def drawn(banned: Any, seeds: int) -> list[int]:
        engine = Engine(model, encoder.processor, banned)
        requests = [
            ChatRequest("", "", 0, "student", prompt.messages, rollouts.frames, "", Sampling(2.0, max_tokens=50), seed)
            for seed in range(seeds)
        ]
        answers: list[Any] = engine.answer(requests)
        model.generation_config = engine.own_defaults
        return [token for answer in answers for token in answer.token_ids]

    tokens = drawn(encoder.placeholders, 64)
    assert len(tokens) >= 1500
    assert not set(tokens) & set(encoder.placeholders)
    assert set(drawn((), 64)) & set(encoder.placeholders)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stored_reply_with_a_placeholder_is_scored_and_its_token_weighs_nothing(family: str) -> None:
    model, encoder = _player(family)
    scorer, rollouts, episode = _scorer(encoder)
    row = _student_rows(rollouts, episode, encoder)[0]
    broken = replace(row, tokens=(*row.tokens[:2], encoder.placeholders[0], *row.tokens[2:]))
    with torch.no_grad():
        scored = scorer(model, [row, broken])
    assert bool(scored.isfinite().all())
    valid = scorer.valid([row, broken])
    assert (~valid).nonzero().tolist() == [[len(row.tokens) + 2]]
    assert len(scored) == len(valid) == 2 * len(row.tokens) + 1
    turns = [TurnSample(name, 0, each, each, 0.0, 0) for name, each in (("whole", row), ("broken", broken))]
    config = make_rl_config({"env": "frozenlake", "model": "none", "kl": 0.0})
    made = score_turns(turns, scorer, ModelWeights(model), None, config)
    assert token_figures([], made)["placeholders"] == 1
    assert [int(each.tokens.active.sum()) for each in made] == [len(row.tokens)] * 2, "its token weighs nothing"


CONTENT = st.lists(st.sampled_from(["red", "blue", "wide", "Go.", "Where to?", "Now up."]), max_size=4)
"""Parts of a prompt: names of pictures, and texts."""
REPLIES = st.sampled_from(["up", "a long way down"])


def _content_row(content: Sequence[str], encoder: Encoder, reply: str, pictures: Mapping[str, EncodedFrame]) -> Row:
    parts = [
        {"type": "image", "frame_id": pictures[part].frame_id} if part in pictures else {"type": "text", "text": part}
        for part in content
    ]
    messages = ({"role": "user", "content": [*parts, {"type": "text", "text": "Answer."}]},)
    return Row(PromptMessages(digest(messages), "test", "1", messages), _reply(encoder, reply))


def _coloured() -> dict[str, EncodedFrame]:
    sizes = {"red": ((200, 0, 0), 56), "blue": ((0, 0, 200), 56), "wide": ((0, 200, 0), 112)}
    return {
        name: EncodedFrame.encode(np.full((56, width, 3), colour, np.uint8)) for name, (colour, width) in sizes.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
@given(rows=st.lists(st.tuples(CONTENT, CONTENT, CONTENT, REPLIES, REPLIES), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_common_beginning_changes_no_score(
    family: str, rows: list[tuple[list[str], list[str], list[str], str, str]]
) -> None:
    model, encoder = _player(family)
    scorer, pictures = Scorer(encoder), _coloured()
    scorer.pictures = {frame.frame_id: frame for frame in pictures.values()}
    pairs = [
        (_content_row(both + mine, encoder, first, pictures), _content_row(both + others, encoder, second, pictures))
        for both, mine, others, first, second in rows
    ]
    cache = VisionCache(model)
    together = scorer.measured_pairs(model, pairs, cache, (entropy, entropy))
    for number, measured in enumerate(together):
        alone = scorer.measured(model, [pair[number] for pair in pairs], cache, entropy)
        for one, other in zip(measured, alone, strict=True):
            for name in (SAMPLED, "entropy"):
                torch.testing.assert_close(one[name], other[name], atol=5e-6, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("objective", ["printed", "distribution"])
def test_a_teacher_of_the_students_weights_scores_as_one_apart_does(family: str, objective: str) -> None:
    model, encoder = _player(family)
    scorer, pairs = _taught_pairs(encoder)
    turns = [TurnSample("", t, first, second, 1.0, 2) for t, (first, second) in enumerate(pairs)]
    turns += [TurnSample("", 9, pairs[0][0], pairs[0][0], 1.0, 2), TurnSample("", 10, pairs[1][0], None, 1.0, 2)]
    config = make_rl_config({"env": "sokoban", "model": "none", "kl": 0.0, "opd_objective": objective})
    made = [
        score_turns(
            turns, scorer, ModelWeights(model), None, config, teacher_weights=weights, objective=objective_of(config)
        )
        for weights in (None, ModelWeights(model))
    ]
    for one, other in zip(*made, strict=True):
        assert torch.equal(one.tokens.old, other.tokens.old)
        assert torch.equal(one.tokens.active, other.tokens.active)
        torch.testing.assert_close(one.tokens.teacher, other.tokens.teacher, atol=5e-6, rtol=0)
        assert (one.tokens.teacher_candidates is None) == (objective == "printed")
        if one.tokens.teacher_candidates is not None:
            torch.testing.assert_close(
                one.tokens.teacher_candidates, other.tokens.teacher_candidates, atol=5e-6, rtol=0
            )
    assert (made[0][0].tokens.teacher - made[0][0].tokens.old).abs().max() > 1e-5


def _taught_pairs(encoder: Encoder) -> tuple[Scorer, list[tuple[Row, Row]]]:
    """Rows of Student and Teacher of a failure, arm mp."""
    scorer, rollouts, episode = _scorer(encoder, "sokoban")
    profile = plugins.load("environments", "sokoban").profile
    frames = {key: frame.image for key, frame in rollouts.frames.items()}
    hindsight = hindsight_of(ARMS["mp"], profile, "", frame_ids(episode), Reading(4, "timeout", ""), frames)
    assert hindsight.panel is not None
    scorer.pictures[hindsight.panel.frame_id] = hindsight.panel
    prompts = plugins.load("prompts", "sokoban")
    return scorer, [
        (row, replace(row, prompt=teacher_prompt(row.prompt, prompts, "sokoban", hindsight)))
        for row in _student_rows(rollouts, episode, encoder)
    ]


def test_a_black_panel_changes_the_teacher() -> None:
    model, encoder = _player()
    scorer, pairs = _taught_pairs(encoder)
    panel = image_ids(pairs[0][1].prompt.messages)[-1]
    frame = scorer.pictures[panel]
    blind = Scorer(encoder)
    blind.pictures = {**scorer.pictures, panel: EncodedFrame.encode(np.zeros((frame.height, frame.width, 3), np.uint8))}
    with torch.no_grad():
        right, again, black = (each(model, [pairs[0][1]]) for each in (scorer, scorer, blind))
    assert torch.equal(right, again)
    assert (right - black).abs().max().item() > 1e-5


def test_the_beginning_that_student_and_teacher_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, encoder = _player()
    scorer, pairs = _taught_pairs(encoder)
    widths: list[int] = []
    forward = model.model.forward

    def counted(input_ids: Any, **others: Any) -> Any:
        widths.append(input_ids.shape[1])
        return forward(input_ids=input_ids, **others)

    monkeypatch.setattr(model.model, "forward", counted)
    scorer.measured_pairs(model, pairs, VisionCache(model), (entropy, entropy))
    student, teacher = (max(scorer.length(pair[number]) for pair in pairs) for number in (0, 1))
    assert widths[0] == student
    assert widths[1] < teacher - 0.5 * student
    assert scorer.measured_pairs(model, [pairs[0][:1] * 2], VisionCache(model), (entropy, entropy))[0]
    assert len(widths) == 3, "equal rows are computed once"


def test_micro_batches_hold_every_row_once_within_the_budget() -> None:
    lengths = [5, 50, 7, 31, 8, 120, 6]
    kinds = [True, False, True, True, False, False, True]
    batches = micro_batches(lengths, 60, kinds)
    assert sorted(place for batch in batches for place in batch) == list(range(7))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= 60
        assert len({kinds[place] for place in batch}) == 1


def test_an_eye_forgets_what_does_not_fit_and_still_sees_the_same() -> None:
    model, encoder = _player()
    scorer, rollouts, episode = _scorer(encoder, "sokoban")
    rows = _student_rows(rollouts, episode, encoder)
    cache = VisionCache(model)
    with torch.no_grad():
        expected = scorer(model, rows, cache)
        least = cache.cached.bytes // len({name for row in rows for name in image_ids(row.prompt.messages)})
        narrow = VisionCache(model, ByteCache(least))
        for _ in range(2):
            seen = torch.cat([scorer(model, [row], narrow) for row in rows])
            torch.testing.assert_close(seen, expected, atol=2e-6, rtol=0)
            assert 0 < narrow.cached.bytes <= least


# An update encodes each prompt once, and each picture once if the vision encoder is not trained


@pytest.mark.parametrize("lora", [True, False])
def test_an_update_of_navigation(lora: bool, player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, looks, shown = Counter[str](), list[int](), set[str]()
    rows, collages = list[Row](), Counter[str]()
    encode, scored, ask = Encoder.prompt, score_turns, TrainedEngine._prompt

    def counted(self: Encoder, messages: Any, pictures: Any) -> Any:
        encoded[f"{messages}"] += 1
        return encode(self, messages, pictures)

    def score(turns: Any, *args: Any) -> Any:
        rows.extend(row for turn in turns for row in (turn.student, turn.teacher) if row is not None)
        shown.update(name for row in rows for name in image_ids(row.prompt.messages))
        return scored(turns, *args)

    def prompt(self: TrainedEngine, request: ChatRequest) -> Any:
        collages[f"{request.messages}"] += request.role == "analyzer"
        return ask(self, request)

    monkeypatch.setattr(TrainedEngine, "_prompt", prompt)
    monkeypatch.setattr(Encoder, "prompt", counted)
    monkeypatch.setattr(loop, "score_turns", score)
    sizes = {"levels": 4, "prompts": 1, "rollouts": 2, "updates": 1, "minibatch": 2, "generate": 4, "max_tokens": 4}
    fields = {"settings": {"horizon": 4}, "analyzer_tokens": 4, "validation_episodes": 0, "keep_rollouts": 0}
    named = {"env": "navigation", "model": str(player), "arm": "mp", "lora": lora, "lora_rank": 4}
    prepared = loop.prepare(make_rl_config(named | sizes | fields))
    look = prepared.model.model.get_image_features

    def looked(pixel_values: Any, image_grid_thw: Any = None, **more: Any) -> Any:
        looks.append(len(image_grid_thw))
        return look(pixel_values, image_grid_thw, **more)

    prepared.model.model.get_image_features = looked
    loop.train(prepared, tmp_path / "run")
    assert len(rows) >= 8 and any(len(image_ids(row.prompt.messages)) > 1 for row in rows)
    assert set((encoded - collages).values()) == {1}, "the Analyzer's are encoded for each request"
    assert len(encoded - collages) == len({row.prompt.prompt_hash for row in rows})
    if lora:
        assert sum(looks) == len(shown) + collages.total()
    else:
        assert sum(looks) > len(shown) + collages.total(), "generation, score and update encode with other weights"


def test_kept_pictures_change_neither_log_probabilities_nor_gradients(player: Path) -> None:
    """The tolerance, 2e-6 nats in float32, is that of other shapes of batches."""
    fields = {"levels": 4, "prompts": 1, "rollouts": 2, "keep_rollouts": 0, "lora": True, "lora_rank": 4}
    prepared = loop.prepare(make_rl_config({"env": "frozenlake", "model": str(player), **fields}))
    scorer, model = Scorer(prepared.encoder), prepared.model
    turns = loop.first_turns(prepared.levels, 3)
    for turn in turns:
        scorer.pictures |= turn.images
    rows = [
        Row(turn.prompt, tuple(prepared.encoder.reply_tokens("<think></think><action>up</action>"))) for turn in turns
    ]
    for each in model.parameters():  # adapters begin at zero
        if each.requires_grad:
            torch.nn.init.normal_(each, std=0.1)
    made = []
    for kept in (VisionCache(model, ByteCache(0)), VisionCache(model), None):
        with torch.no_grad():
            scorer(model, rows[:1], kept)
        model.zero_grad()
        values = scorer(model, rows, kept)
        values.sum().backward()
        made.append(
            (values.detach(), torch.cat([each.grad.flatten() for each in model.parameters() if each.requires_grad]))
        )
    for values, gradient in made[1:]:
        torch.testing.assert_close(values, made[0][0], atol=2e-6, rtol=0)
        torch.testing.assert_close(gradient, made[0][1], atol=1e-4, rtol=1e-4)
