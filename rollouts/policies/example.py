"""The turn of the pre-flight check: the first one in a small room of Sokoban, with the real prompt."""

from ...core.messages import EncodedFrame
from ...environments.base import Task
from ...environments.sokoban import SokobanEnv
from ...environments.sokoban.prompt import PROMPT
from ...environments.turns import Turn
from ..base import render_student

EPISODE = "preflight"
ROOM = "######\n#    #\n# $  #\n#@ . #\n#    #\n######"


def example_turn() -> Turn:
    """Return the example turn."""
    env = SokobanEnv.from_settings({})
    frame, _ = env.reset(options={"state": ROOM})
    picture = EncodedFrame.encode(frame)
    task = Task(EPISODE, 0, ROOM, "")
    prompt = render_student(PROMPT, env.profile, task, t=0, frame_id=picture.frame_id)
    return Turn(EPISODE, 0, 0, prompt, {picture.frame_id: picture}, task, env)
