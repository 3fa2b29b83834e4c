"""The acting prompt of FrozenLake. Its legend comes from the renderer, so that text and picture always agree."""

from ..grid_prompt import GridPrompt
from . import LEGEND

PROMPT = GridPrompt(
    template="student.frozenlake",
    version="1",
    task=(
        "This is FrozenLake: you walk over a frozen lake, seen from above as a grid of square cells. You want to reach "
        "the goal and only have a few turns for it."
    ),
    legend=LEGEND,
    rules=(
        "A move takes you one cell up, down, left or right; the ice does not slip.",
        "Entering a hole ends the attempt, and it is lost.",
        "Arriving at the goal wins.",
        "A move against the edge of the lake changes nothing and still uses up a turn.",
    ),
    thinking="where you stand, where the goal is, and which cells on the way are holes",
)
