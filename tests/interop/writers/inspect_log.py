"""Write a log with inspect_ai: its mock model plays the given replies in a solver of several turns.

``python inspect_log.py PLAYS.json FOLDER``, in an environment that has inspect_ai and not PIVOT.
"""

import json
import sys
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import solver


@solver
def player(plays: list[dict[str, Any]]) -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        play = plays[state.metadata["index"]]
        state.messages = []
        for frame in play["frames"][: len(play["replies"])]:
            parts = [ContentText(text="Now"), ContentImage(image=frame)]
            state.messages.append(ChatMessageUser(content=parts))
            state = await generate(state)
        return state

    return solve


@scorer(metrics=[accuracy()])
def won(plays: list[dict[str, Any]]) -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value="C" if plays[state.metadata["index"]]["success"] else "I")

    return score


def main() -> None:
    plays = json.loads(Path(sys.argv[1]).read_text())
    samples = [
        Sample(input="Now", id=str(index), metadata={"index": index, **play["facts"]})
        for index, play in enumerate(plays)
    ]
    outputs = [ModelOutput.from_content("mockllm/model", reply) for play in plays for reply in play["replies"]]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else a tokenizer is downloaded
    task = Task(dataset=samples, solver=player(plays), scorer=won(plays))
    eval(
        task,
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=sys.argv[2],
        max_samples=1,
        display="none",
        log_images=True,
    )


main()
