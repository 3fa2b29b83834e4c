"""Write traces with verifiers: its graph takes the given turns, and its store writes the episodes.

``python verifiers_log.py PLAYS.json FOLDER``, in an environment that has verifiers and not PIVOT.
"""

import json
import sys
from pathlib import Path
from typing import Any

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import EnvInfo, Episode
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, ModelCall, Reward, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, ImageUrlContentPart, ImageUrlSource, TextContentPart, UserMessage
from verifiers.v1.utils.trace_store import write_episode


def trace_of(play: dict[str, Any]) -> Any:
    nodes: list[MessageNode] = []
    calls: list[ModelCall] = []

    def add(message: Any, **fields: Any) -> None:
        nodes.append(MessageNode(parent=len(nodes) - 1 if nodes else None, message=message, **fields))

    for frame, reply in zip(play["frames"], play["replies"], strict=False):
        picture = ImageUrlContentPart(image_url=ImageUrlSource(url=frame))
        add(UserMessage(content=[TextContentPart(text="Now"), picture]), token_ids=[1, 2], mask=[False, False])
        sampled = {"token_ids": [3, 4, 5], "mask": [False, True, True], "logprobs": [-0.25, -0.5]}
        add(AssistantMessage(content=reply), sampled=True, **sampled)
        calls.append(ModelCall(node=len(nodes) - 1, finish_reason="stop"))
    data = WireTaskData.model_validate(play["facts"])
    return Trace(
        task=TraceTask(type="Lake", data=data),
        agent=AgentInfo(config=WireAgentConfig(model="stub")),
        nodes=nodes,
        calls=calls,
        rewards={"won": Reward(score=float(play["success"])), "unscored": None},
        is_completed=True,
        ok=True,
        stop_condition="max_turns",
    )


def main() -> None:
    folder = Path(sys.argv[2])
    for play in json.loads(Path(sys.argv[1]).read_text()):
        trace = trace_of(play)
        write_episode(folder, Episode(env=EnvInfo(id="lake"), task=trace.task, traces=[trace], ok=True))


main()
