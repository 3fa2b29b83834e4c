"""The acting prompt of Sokoban. Its legend comes from the renderer, so that text and picture always agree."""

from ..grid_prompt import GridPrompt
from . import LEGEND

PROMPT = GridPrompt(
    template="student.sokoban",
    version="1",
    task=(
        "This is Sokoban, a puzzle about moving boxes in a walled room. You steer one person. The puzzle is solved as "
        "soon as every box stands on a target, and you only have a few turns for it."
    ),
    legend=LEGEND,
    rules=(
        "A move takes the person one cell up, down, left or right.",
        "Walking into a box pushes it one cell further, provided that the cell behind it holds neither wall nor box.",
        "A box can never be pulled. In a corner, or along a wall without a target, it may be lost for good.",
        "A move that is blocked changes nothing and still uses up a turn.",
    ),
    thinking=(
        "where the person, the boxes and the targets are, from which side a box has to be pushed, and whether a push "
        "could trap it"
    ),
)
