"""A search over whole turns that only plays the environment."""

from pivot.environments.grid import GridEnv

NAMES = ("up", "down", "left", "right")


class Turns:
    """Fewest turns to success from every state of a level, by a search over all turns."""

    def __init__(self, env: GridEnv, level: str) -> None:
        """Play every turn in every state that is reached from the level."""
        env.reset(options={"state": level})
        states, before = [level], {level: list[str]()}
        won: list[str] = []
        for state in states:  # grows
            successors: dict[str, bool] = {}
            for turn in range(env.last_index + 1):
                env.restore(b"0\n" + state.encode())
                *_, ended, _, info = env.step(turn)
                successors[env.state_text()] = ended
                if info["success"]:
                    won.append(env.state_text())
            for after, ended in successors.items():
                if after not in before:
                    before[after] = []
                    states += [] if ended else [after]
                before[after].append(state)
        self.needs = dict.fromkeys(won, 0)
        queue = list(self.needs)
        for state in queue:  # grows
            for earlier in before[state]:
                if earlier not in self.needs:
                    self.needs[earlier] = self.needs[state] + 1
                    queue.append(earlier)
