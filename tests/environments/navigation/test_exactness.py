"""Environment and solver hold the same rules: poses, distances to the last bit, and success at exactly 1.5 m."""

import json
import random

from pivot.environments.navigation.environment import NavigationConfig, NavigationEnv
from pivot.environments.navigation.state import NavigationState, Pose, Target, parse_state
from pivot.solvers.navigation.room import read_state
from pivot.solvers.navigation.solver import ACTIONS
from pivot.tests.navigation_episodes import random_room


def test_environment_and_solver_agree_on_every_step() -> None:
    rng = random.Random(21)
    env = NavigationEnv(NavigationConfig(horizon=25))
    env.draw_frames = False
    steps = 0
    while steps < 3000:
        text = json.dumps(random_room(rng))
        room = read_state(text, 1.5).room
        assert room is not None
        _, info = env.reset(options={"state": text})
        pose = room.start
        assert info["dist"] == room.distance(pose)
        over = info["success"]
        while not over:
            action = rng.choice((*ACTIONS, *ACTIONS[:4], "invalid"))
            following, worked = room.after(pose, action)
            _, _, terminated, truncated, info = env.step(env.encode_action(action))
            assert info["dist"] == room.distance(following)
            assert info["last_action_success"] == worked
            assert info["moved"] == (following[:2] != pose[:2])
            assert info["success"] == (room.turns(following) == 0)
            pose, over = following, terminated or truncated
            steps += 1


def test_exactly_one_and_a_half_metres_is_a_success() -> None:
    """In metres and floats it would be a little more for a third of the places."""
    rng = random.Random(22)
    for _ in range(500):
        x, z = rng.randint(0, 5000), rng.randint(0, 5000)
        dx, dz = rng.choice(((900, 1200), (1200, -900), (0, 1500), (-420, 1440)))
        for further, near in ((0, True), (1, False)):
            state = NavigationState(
                "embedded",
                "room",
                Pose(x / 1000, 0.9, z / 1000, 0, 0),
                Target("A", "A", (x + dx) / 1000, 0.9, (z + dz + (further if dz > 0 else -further)) / 1000),
                "{}",
            )
            assert (state.distance() <= 1.5) == near


def test_the_text_of_a_random_room_is_read_by_both() -> None:
    rng = random.Random(23)
    for _ in range(20):
        text = json.dumps(random_room(rng))
        assert parse_state(text).distance() == read_state(text, 1.5).start_distance
