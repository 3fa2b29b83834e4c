"""Tables for tests: made from places, and worked on by primitives written as text."""

from pivot.environments.primitiveskill.actions import read_primitives
from pivot.environments.primitiveskill.table.tabletop import Table
from pivot.environments.primitiveskill.tasks import KINDS, Point, Scene


def table(task: str, *at: Point, drawer: float | None = None) -> Table:
    """Return the table of a task with its objects at these positions."""
    return Table(KINDS[task], Scene(dict(zip(KINDS[task].things, at, strict=True)), None, drawer))


def do(on: Table, actions: str) -> Scene:
    """Execute any number of primitives and return the scene; the table must be at rest after each."""
    for part in actions.split("|"):
        [primitive], void = read_primitives(part)
        assert void is None
        on.execute(primitive)
        assert Table(on.kind, on.scene).problem() is None
    return on.scene


def cubes(scene: Scene) -> list[Point]:
    """Return the positions of the objects, in the task's order."""
    return list(scene.positions.values())
