"""Rollouts of a policy that submits hostile documents: no episode is lost."""

from collections.abc import Mapping
from typing import Any

from pivot.core.plugins import Settings
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import Policy, Status
from pivot.rollouts.loop import roll_out_tasks
from pivot.tests.environments.svg.hostile import hostile_documents


class HostilePolicy(Policy):
    """A policy that answers with the next document of a list, whatever the prompt."""

    config_type = Settings
    name = "hostile"

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._documents = iter(documents.values())

    @property
    def config(self) -> dict[str, Any]:
        return {}

    async def reply(self, turn: Turn) -> Reply:
        return Reply(f"<think>now</think><answer>{next(self._documents)}</answer>")


def test_no_episode_is_lost() -> None:
    everything = hostile_documents("127.0.0.1:9", "/no/such/file")
    texts = {name: document for name, document in everything.items() if isinstance(document, str)}
    kinds = ("external image", "external use", "entity", "number rect", "odd", "mutation", "use circle", "surrogate")
    chosen = {name: document for name, document in texts.items() if name.startswith(kinds)}
    chosen |= {
        name: texts[name]
        for name in ("use doubling", "number circle 1e308", "path of 50 MB", "text", "nul", "gzip")
        if name in texts
    }
    assert len(chosen) > 120
    config = SvgConfig()
    count = len(chosen) // config.horizon
    task = SvgEnv.make_task(config, 0)
    (rollouts,) = roll_out_tasks(SvgEnv, config, [task], HostilePolicy(chosen), count, concurrency=1)
    assert [episode.status for episode in rollouts.episodes] == [Status.COMPLETE] * count
    steps = [step for episode in rollouts.episodes for step in episode.steps]
    assert all(step.info["average_score"] == 0 for step in steps if not step.info["valid_svg"])
    assert {step.info["valid_svg"] for step in steps} == {False, True}
    env = SvgEnv(config)
    for episode in rollouts.episodes[::10]:
        env.reset(options={"state": task.initial_state})
        for step in episode.steps:
            _, reward, *_, info = env.step(env.encode_action(step.action, step.payload))
            assert (reward, info["average_score"]) == (step.reward, step.info["average_score"])
