"""A search over whole turns, by steps of the environment alone."""

import random

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


def play_turns(env: GridEnv, level: str, rng: random.Random) -> tuple[list[str], list[str], bool]:
    """Play turns of random length; return the turns, the states before and after them, and whether it was a success."""
    env.reset(options={"state": level})
    turns, states = list[str](), [env.state_text()]
    while True:
        length = rng.randint(0, env.config.actions_per_turn)
        turns.append("|".join(rng.choices(NAMES, k=length)) or "invalid")
        *_, ended, spent, info = env.step(env.encode_action(turns[-1]))
        states.append(env.state_text())
        if ended or spent:
            return turns, states, bool(info["success"])
