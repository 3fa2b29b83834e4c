"""The acting prompt of PrimitiveSkill."""

from pivot.core import plugins
from pivot.environments.base import Task
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.environments.primitiveskill.state import SkillState
from pivot.environments.primitiveskill.tasks import KINDS, Scene
from pivot.environments.turns import HistoryEntry

PLACES = ((0.0, -100.0, 20.0), (100.0, 50.0, 20.0), (-60.0, 150.0, 20.0))
SCENE = Scene(dict(zip(KINDS["stack"].things, PLACES, strict=True)), None, None)
STACK = SkillState("embedded", "stack", SCENE, (False,) * 3).text()


def prompt_parts(t: int, history: list[HistoryEntry]) -> tuple[list[str], str]:
    env = PrimitiveSkillEnv()
    _, info = env.reset(options={"state": STACK})
    task = Task("t-1", 1, STACK, KINDS["stack"].instruction)
    prompt = plugins.load("prompts", "primitiveskill")
    [message] = prompt.render(
        env.profile, task, t=t, frame_id="ab", history=history, observation=info["observation_text"]
    )
    kinds = [part["type"] for part in message["content"]]
    return kinds, "\n".join(part.get("text", "<picture>") for part in message["content"])


def test_the_prompt_says_what_the_student_needs() -> None:
    kinds, text = prompt_parts(0, [])
    assert kinds == ["text", "image", "text"]
    for part in (
        KINDS["stack"].instruction,
        "pick(x,y,z)",
        "place(x,y,z)",
        "push(x1,y1,z1,x2,y2,z2)",
        "This is your first step",
        "Workspace limits in mm: x -100 to 150",
        "[(0,-100,20),(100,50,20),(-60,150,20)]",
        "sides of 40 mm",
        "<think>...</think><answer>...</answer>",
    ):
        assert part in text
    assert "{" not in text and "None" not in text
    # Positions have no names.
    assert "red cube" not in text.replace(KINDS["stack"].instruction, "")


def test_the_prompt_shows_the_last_two_actions() -> None:
    history = [HistoryEntry(1, "empty"), HistoryEntry(2, "pick(0,-100,20)"), HistoryEntry(3, "place(1,2,3)")]
    _, text = prompt_parts(3, history)
    assert "Steps so far: 3. The last ones: step 2: pick(0,-100,20); step 3: place(1,2,3)." in text
    assert "Now comes step 4." in text
    assert "empty" not in text
