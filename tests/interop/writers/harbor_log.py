"""Write trajectories with the models of Harbor: a trial per play, its pictures beside the trajectory.

``python harbor_log.py PLAYS.json FOLDER``, in an environment that has harbor (the models alone suffice) and not PIVOT.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

from harbor.models.trajectories import (
    Agent,
    ContentPart,
    ImageSource,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)
from harbor.models.verifier.result import VerifierResult


def write_trial(folder: Path, play: dict[str, Any]) -> None:
    (folder / "agent" / "images").mkdir(parents=True)

    def picture(index: int) -> list[ContentPart]:
        name = f"images/{index}.png"
        (folder / "agent" / name).write_bytes(base64.b64decode(play["frames"][index].partition(",")[2]))
        source = ImageSource(media_type="image/png", path=name)
        return [ContentPart(type="text", text="Now"), ContentPart(type="image", source=source)]

    steps = [Step(step_id=1, source="user", message=picture(0))]
    for index, moves in enumerate(play["moves"]):
        call = ToolCall(tool_call_id=f"c{index}", function_name="move", arguments={"direction": moves})
        result = ObservationResult(source_call_id=f"c{index}", content=picture(index + 1))
        steps.append(
            Step(
                step_id=index + 2,
                source="agent",
                message=play["replies"][index],
                tool_calls=[call],
                observation=Observation(results=[result]),
                metrics=Metrics(completion_token_ids=[1, 2], logprobs=[-0.5, -0.5]),
            )
        )
    agent = Agent(name="stub", version="1", model_name="stub")
    trajectory = Trajectory(
        schema_version="ATIF-v1.7", session_id=folder.name, agent=agent, steps=steps, extra=play["facts"]
    )
    (folder / "agent" / "trajectory.json").write_text(json.dumps(trajectory.to_json_dict()))
    verdict = VerifierResult(rewards={"reward": float(play["success"])}).model_dump(mode="json")
    (folder / "result.json").write_text(json.dumps({"task_name": "lake", "verifier_result": verdict}))


def main() -> None:
    for index, play in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        write_trial(Path(sys.argv[2]) / f"trial-{index}", play)


main()
