"""The acting prompt of PrimitiveSkill: instruction, actions, the last two actions as text, picture, and coordinates.

Steps are counted from 1 here, as in every history that a model reads; everywhere else they count from 0. Positions
come without names, in a fixed order: the picture shows which object each belongs to.
"""

from collections.abc import Sequence
from typing import Any

from ..base import EnvProfile, Task
from ..turns import HistoryEntry, StudentPrompt

SHOWN_ACTIONS = 2

_TASK = """\
You command a robot arm above a table. You see the table through a camera and are told where things are. You only have a
few turns for what you were asked.

What you were asked: {instruction}

Commands; all coordinates are whole millimetres:
- pick(x,y,z): open the gripper, lower it to this point, close it, lift what it holds
- place(x,y,z): lower the gripper to this point and let go of what it holds
- push(x1,y1,z1,x2,y2,z2): lower the closed gripper to the first point, move it in a straight line to the second

A turn takes one command, or two with a | between them, which are carried out in this order.

How the coordinates run, as the camera sees it (it looks from the far side back towards the robot, along -x):
- x grows towards you: of two things, the one nearer to you has the larger x.
- y grows to the right: what is on the left has the smaller y.
- z grows upwards; the table is at z = 0.

Good to know:
- A position is the centre of a thing. The list has no names; find out from the picture which position is which thing.
- To place something, mind its height and what is below it. A z that is somewhat too large does no harm: it drops.
- Points outside the workspace limits are moved to its border.
- A command that is misspelt or has a wrong number of coordinates is dropped, and so is what follows it in the turn.

An example, of another table: the picture shows a blue cube on the left and a yellow one on the right, each of 40 mm,
and the positions are [(30,-120,20),(-15,90,20)]. The blue one must be (30,-120,20), because its y is smaller. To put it
on the yellow one, with some air below: pick(30,-120,20)|place(-15,90,75)
"""


class PrimitiveSkillPrompt(StudentPrompt):
    """A prompt that depends on the turn, the last two actions, the picture and the positions."""

    template = "student.primitiveskill"
    version = "1"

    def render(
        self,
        profile: EnvProfile,
        task: Task,
        *,
        t: int,
        frame_id: str,
        history: Sequence[HistoryEntry],
        observation: str,
    ) -> tuple[dict[str, Any], ...]:
        """Return one user message: task and history, the picture, positions and the closing instruction."""
        tag = profile.answer_tag
        recent = "; ".join(f"step {entry.step}: {entry.action}" for entry in history[-SHOWN_ACTIONS:])
        past = f"Steps so far: {t}. The last ones: {recent}." if history else "This is your first step."
        before = f"{_TASK.format(instruction=task.instruction)}\n{past}\nNow comes step {t + 1}. What the camera sees:"
        closing = (
            f"{observation}\n\n"
            "First think about which position belongs to which thing, what is done already, and what comes next. Then "
            "choose one command, or two with a | between them.\n"
            "Reply in exactly this form, with your thoughts and your commands in place of the dots:\n"
            f"<think>...</think><{tag}>...</{tag}>"
        )
        content = [
            {"type": "text", "text": before},
            {"type": "image", "frame_id": frame_id},
            {"type": "text", "text": closing},
        ]
        return ({"role": "user", "content": content},)


PROMPT = PrimitiveSkillPrompt()
