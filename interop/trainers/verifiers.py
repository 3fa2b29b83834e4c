"""A taskset of verifiers 0.4: PIVOT's levels, played for several turns with a picture in every user message.

Read in verifiers 0.4.0: ``verifiers/v1/taskset.py`` and ``env.py`` (the environment drives the player's turns),
``agent.py`` (``Interaction.turn``), ``harness.py`` (a harness may run in this process) and ``utils/loaders.py``, which
loads a taskset by the name of a top-level package: ``pivot-vlm``.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
from openai import APIError, AsyncOpenAI
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire  # pyright: ignore[reportMissingImports]

from ...core.messages import with_thought
from ...environments.base import Task
from ...environments.turns import ReplyOutcome
from .play import DEFAULT_RULE, Game, Play, standardized

TURN_REWARDS = "turn_rewards"
"""Key of a trace's ``info``: the credit of every turn by the rule."""


class PivotData(vf.TaskData):
    """A level; the model sees nothing of it but prompts and pictures."""

    level: dict[str, Any]
    """Fields of :class:`pivot.environments.base.Task`."""


class PivotTask(vf.Task[PivotData]):
    """A level as a task; the environment records its rewards."""


class PivotTasksetConfig(vf.TasksetConfig):
    """Settings of the taskset, ``--env.taskset.NAME``."""

    env: str = "sokoban"
    """Environment, such as ``sokoban``."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment, such as ``{"boxes": 2}``."""
    tasks: int = Field(100, ge=1)
    """Number of levels."""
    seed: int = 0
    """Seed of the levels."""
    rule: str | None = DEFAULT_RULE
    """Rule of the credit per turn in ``turn_rewards``; None for no credit."""


class PivotTaskset(vf.Taskset[PivotTask, PivotTasksetConfig]):
    """The levels of one environment."""

    def __init__(self, config: PivotTasksetConfig) -> None:
        """Check environment, settings and rule.

        Raises:
            ConfigError, PluginError: one of them cannot be used.
        """
        super().__init__(config)
        self.game = Game(config.env, "verifiers", config.settings, config.rule)

    def load(self) -> Iterator[PivotTask]:
        """Yield the levels in the order of a build."""
        for task in self.game.tasks(self.config.tasks, self.config.seed):
            data = PivotData(id=task.task_id, name=task.task_id, prompt=None, level=asdict(task))
            yield PivotTask(data, self.config.task)


class PivotHarness(vf.Harness[vf.HarnessConfig]):
    """A chat without tools inside this process: one request per turn, no program and no container."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Send the conversation to the model; see the base class."""
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [] if system is None else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += map(message_to_wire, prompt or [])
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None, max_retries=0) as client:
            try:
                await client.chat.completions.create(model=ctx.model, messages=messages)
            except APIError as error:
                return vf.ProgramResult(exit_code=1, stdout="", stderr=f"{type(error).__name__}: {error}")
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class PivotTasksetEnvConfig(vf.EnvConfig):
    """Settings of the environment: the player, ``--env.player.NAME``."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The agent that plays. Its harness needs no machine of its own."""


class PivotTasksetEnv(vf.Env[PivotTasksetEnvConfig]):
    """The conversation of a player with a level."""

    async def run(self, task: PivotTask, agents: vf.Agents) -> None:
        """Play one episode; record its return as the reward and the credit of its turns in ``info``."""
        assert isinstance(self.taskset, PivotTaskset)
        play = await asyncio.to_thread(self.taskset.game.play, Task(**task.data.level))
        try:
            async with agents.player.interaction(task) as player:
                while not play.is_over:
                    content = await asyncio.to_thread(play.observe_urls)
                    segment = await player.turn([{"role": "user", "content": content}])
                    if segment.terminated:
                        break
                    await asyncio.to_thread(play.take, _reply_of(segment))
            if player.trace.ok:
                await asyncio.to_thread(_record, player.trace, play)
        finally:
            await asyncio.to_thread(play.close)


def _reply_of(segment: vf.Segment) -> str:
    """Return the text of a reply, with the thoughts that a server separated from it in a think block."""
    last = segment.messages[-1] if segment.messages else None
    return with_thought({"reasoning_content": getattr(last, "reasoning_content", None)}, segment.last_reply)


def _record(trace: vf.Trace, play: Play) -> None:
    """Record reward, metrics and credit; turns after a limit of the player have empty replies."""
    taken = play.episode.num_steps
    episode = play.finish()
    trace.record_reward("episode_return", episode.episode_return)
    trace.record_metric("success", float(bool(episode.success)))
    trace.record_metric("turns", float(taken))
    valid = [step.reply_outcome is ReplyOutcome.OK for step in episode.steps]
    trace.record_metric("format_kept", sum(valid) / len(valid))
    trace.info[TURN_REWARDS] = play.turn_rewards
    trace.info["env_rewards"] = episode.rewards
    trace.info["actions"] = episode.actions


def add_turn_credit(group: Sequence[vf.Trace], weight: float = 1.0) -> None:
    """Add ``weight * (c - mean) / std`` to the advantages of the tokens of each turn of a group of traces.

    ``c`` is the credit of the turn; mean and population deviation are those over all turns of the group that were
    played. Call it once the algorithm of a trainer has assigned its own advantages, such as those of GRPO.
    """
    replies = [[node for node in trace.nodes if node.sampled] for trace in group]
    credits_ = [(trace.info.get(TURN_REWARDS) or [])[: len(own)] for trace, own in zip(group, replies, strict=True)]
    for nodes, own in zip(replies, standardized(credits_), strict=True):
        for node, value in zip(nodes, own, strict=False):
            node.advantages = [each + weight * value for each in node.advantages or [0.0] * sum(node.mask)]
