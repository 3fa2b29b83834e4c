"""Play 20 episodes in GRPOTrainer with a tiny model that calls the tool, and compare them with PIVOT's own."""

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pivot.core.errors import ConfigError
from pivot.core.images import decode, frame_id
from pivot.interop.trainers.play import Game
from pivot.interop.trainers.trl import (
    Environments,
    PivotEnvironment,
    TurnAdvantages,
    credit_by_generation,
    credit_reward,
)
from pivot.tests.interop.reference import facts, own_rollout, scores_of, shown_frames

MOVES = ("up", "down", "left", "right")
REPLY = "<think>go {0}</think><action>{0}</action>"


def hash_of(image: Any) -> str:
    return frame_id(np.asarray(image.convert("RGB")))


def images_of(content: Sequence[dict[str, Any]]) -> list[str]:
    return [hash_of(part["image"]) for part in content if part["type"] == "image"]


def test_a_rollout_by_hand_is_the_rollout_of_the_same_replies() -> None:
    environments = Environments("sokoban", tasks=3, seed=1)
    tasks = Game("sokoban", "test").tasks(3, 1)
    environment = environments()
    rows: Any = environments.dataset()
    for index, row in enumerate(rows):
        shown, replies = images_of(environment.reset(**row)), []
        for move in ("down", "up", "left"):
            replies.append(REPLY.format(move))
            pictures = images_of(environment.act(replies[-1]))
            shown += pictures
            if not pictures:  # solved
                break
        record = own_rollout("sokoban", tasks[index], replies)
        assert shown == shown_frames(record)[: len(shown)] and len(shown) >= len(replies)
        assert environment.get_reward() == record.episodes[0].episode_return
        assert facts(environment.episode) == facts(record.episodes[0])
        with pytest.raises(ConfigError, match="after the end of the episode"):
            environment.act(replies[0])


def test_credit_shapes_the_reward_of_a_rollout() -> None:
    environment = Environments("frozenlake", tasks=1)()
    environment.reset(task=0)
    environment.act(REPLY.format("left"))
    turns = scores_of(environment.episode)
    assert environment.turn_rewards == turns and credit_reward([environment], prompts=[]) == [sum(turns)]
    bare = Environments("svg", tasks=1, rule=None)()
    bare.reset(task=0)
    assert credit_reward([bare]) == [None]


def test_only_the_tool_is_public() -> None:
    names = {name for name, each in vars(PivotEnvironment).items() if callable(each) and not name.startswith("_")}
    assert names == {"reset", "act", "get_reward"}


@pytest.mark.train
def test_every_picture_reaches_the_model_and_rewards_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch a picture of a tool's answer that TRL drops, or a reward of another episode."""
    torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
    trl: Any = pytest.importorskip("trl")
    from pivot.tests.interop.tool_player import conversation, make_tool_player

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    torch.set_num_threads(1)
    settings = {"horizon": 5}  # the longest of the shortest solutions
    environments = Environments("sokoban", tasks=5, seed=2, settings=settings)
    tasks = Game("sokoban", "test", settings).tasks(5, 2)

    model, processor = make_tool_player(partial(conversation, environments), environments().act)
    seen: list[list[str]] = []

    def patches(pixels: Any, grids: Any) -> list[str]:
        parts = pixels.split([int(grid.prod()) for grid in grids])
        return [hashlib.sha256(part.float().contiguous().numpy().tobytes()).hexdigest() for part in parts]

    model.model.visual.register_forward_pre_hook(
        lambda _, arguments, named: seen.append(patches(arguments[0], named["grid_thw"])), with_kwargs=True
    )
    rollouts: list[tuple[Any, ...]] = []

    def note(environments: Sequence[PivotEnvironment], completions: Any, **_: Any) -> list[float]:
        """Return zero rewards, and keep the rollouts."""
        for environment, completion in zip(environments, completions, strict=True):
            rollouts.append((environment.episode, completion, environment.get_reward(), environment.turn_rewards))
        return [0.0] * len(environments)

    batches: list[dict[str, Any]] = []

    class Trainer(TurnAdvantages, trl.GRPOTrainer):  # pyright: ignore[reportUntypedBaseClass]
        credit_weight = 0.5

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batches.append(super()._generate_and_score_completions(inputs))
            return batches[-1]

    kind: Any = Trainer
    trainer = kind(
        model=model,
        processing_class=processor,
        environment_factory=environments,
        reward_funcs=[note, credit_reward],
        train_dataset=environments.dataset(),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=20,
            num_generations=4,
            max_steps=1,
            top_k=4,
            temperature=0.8,
            generation_kwargs={"min_new_tokens": 1},
            max_completion_length=1500,
            max_tool_calling_iterations=environments.horizon,
            report_to=[],
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
            seed=3,
        ),
    )
    trainer.train()

    assert len(rollouts) == 20
    sent = {key for call in seen for key in call}
    for episode, completion, reward, _ in rollouts:
        replies = [
            each["function"]["arguments"]["reply"]
            for message in completion
            if message["role"] == "assistant"
            for each in message.get("tool_calls") or ()
        ]
        (task,) = [task for task in tasks if task.task_id == episode.task_id]
        record = own_rollout("sokoban", task, replies, settings)
        (own,) = record.episodes
        assert len(replies) >= own.num_steps and own.stop_reason == episode.stop_reason, "the model did not play on"
        assert facts(episode) == facts(own) and reward == own.episode_return
        shown = shown_frames(record)
        tools = [message["content"] for message in completion if message["role"] == "tool"]
        returned = [key for content in tools if isinstance(content, list) for key in images_of(content)]
        assert returned == shown[1 : own.num_steps]
        pictures = {name: decode(frame.image) for name, frame in record.frames.items()}
        keys = []
        for name in shown:
            done = processor.image_processor(images=[pictures[name]], return_tensors="pt")
            keys += patches(done["pixel_values"], done["image_grid_thw"])
        assert set(keys) <= sent
        assert keys in [_of_one(call, keys) for call in seen], "no call of the model had all pictures of the episode"
    columns = [line for line in trainer.state.log_history if "rewards/PivotEnvironment/mean" in line]
    logged = sum(line["rewards/PivotEnvironment/mean"] for line in columns) / len(columns)
    assert logged == pytest.approx(sum(reward for _, _, reward, _ in rollouts) / 20, abs=1e-5)
    (batch,) = batches
    turns = [(completion, turns) for _, completion, _, turns in rollouts]
    for start in range(0, 20, 4):
        _check_advantages(batch, start, turns[start : start + 4])


def _check_advantages(batch: dict[str, Any], start: int, group: Sequence[tuple[Any, list[float]]]) -> None:
    """Check the advantages of a group; a call after the end of an episode takes no turn."""
    calls = [sum(message["role"] == "assistant" for message in completion) for completion, _ in group]
    scores = [(turns + [0.0] * 9)[:count] for (_, turns), count in zip(group, calls, strict=True)]
    flat = [score for own in scores for score in own]
    for row, own in enumerate(scores, start):
        said = (batch["completion_mask"][row] * batch["tool_mask"][row]).bool().tolist()
        runs = _runs(said, batch["advantages"][row].tolist())
        assert len(runs) == len(own) and all(len(set(run)) == 1 for run in runs)
        pairs = zip(runs, own, strict=True)
        rest = {round(run[0] - 0.5 * (score - np.mean(flat)) / np.std(flat), 4) for run, score in pairs}
        assert len(rest) == 1, "without the credit of their turns, all tokens of a rollout have one advantage"


def _of_one(call: list[str], keys: list[str]) -> list[str]:
    """Return the part of a batch of pictures that equals the pictures of one episode, or None."""
    starts = range(len(call) - len(keys) + 1)
    return next((keys for start in starts if call[start : start + len(keys)] == keys), [])


def _runs(said: list[bool], values: list[float]) -> list[list[float]]:
    """Return the values of the tokens of each generation."""
    runs: list[list[float]] = []
    for index, (own, value) in enumerate(zip(said, values, strict=True)):
        if own and not (index and said[index - 1]):
            runs.append([])
        if own:
            runs[-1].append(value)
    return runs


def test_turns_without_a_call_belong_to_the_last_generation() -> None:
    call, tool = {"role": "assistant", "tool_calls": [{}]}, {"role": "tool", "content": []}
    both, done = {"role": "assistant", "tool_calls": [{}, {}]}, {"role": "assistant"}
    turns = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert credit_by_generation([call, tool, both, tool, tool, done], turns) == [1.0, 6.0, 24.0]
    assert credit_by_generation([call, tool, both, tool, tool], turns) == [1.0, 30.0]
    assert credit_by_generation([done], turns) == [31.0]
    failed = {"role": "tool", "content": "{'error': 'Tool move not found.'}"}
    assert credit_by_generation([call, failed, both, tool, failed, call, tool, done], turns) == [0.0, 1.0, 2.0, 28.0]
    assert credit_by_generation([call], None) == credit_by_generation([], turns) == []
