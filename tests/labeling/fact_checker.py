"""An independent reader of guidance: compares sentences with rules of the games that are written separately here.

Nothing of ``pivot.labeling`` is used but the record of the episode. A sentence that no rule understands is reported
like a false one, so that a new wording has to be understood here before it may be rendered.
"""

import json
import math
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pivot.core import plugins
from pivot.environments.primitiveskill.expert import expert_action
from pivot.labeling.episode import FailedEpisode
from pivot.tests.labeling.advice import ACT, ADVICE
from pivot.tests.labeling.shape_checker import claims
from pivot.tests.navigation_episodes import BruteRoom

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
GENERAL = frozenset((Path(__file__).parent / "general_advice.txt").read_text(encoding="utf-8").splitlines())
"""Sentences that claim nothing about one episode; each was read and holds in every episode of its environment."""
FAR = math.inf
Cell = tuple[int, int]


# The two puzzles


class Lake:
    """FrozenLake without slipping."""

    def __init__(self, text: str) -> None:
        self.rows = [row for row in text.splitlines() if not row.startswith("@")]
        places = [(y, x) for y, row in enumerate(self.rows) for x, cell in enumerate(row) if cell == "S"]
        last = text.splitlines()[-1]
        self.start: Cell = tuple(map(int, last.split()[1:])) if last.startswith("@") else places[0]  # pyright: ignore[reportAttributeAccessIssue]

    def cell(self, at: Cell) -> str:
        inside = 0 <= at[0] < len(self.rows) and 0 <= at[1] < len(self.rows[0])
        return self.rows[at[0]][at[1]] if inside else "#"

    def after(self, at: Cell, action: str) -> Cell:
        if action not in MOVES or self.cell(at) in "HG":
            return at
        ahead = (at[0] + MOVES[action][0], at[1] + MOVES[action][1])
        return at if self.cell(ahead) == "#" else ahead

    def is_done(self, at: Cell) -> bool:
        return self.cell(at) == "G"


class Warehouse:
    """Sokoban: the player and the boxes."""

    def __init__(self, text: str) -> None:
        cells = {(y, x): cell for y, row in enumerate(text.splitlines()) for x, cell in enumerate(row)}
        self.walls = {at for at, cell in cells.items() if cell == "#"}
        self.targets = {at for at, cell in cells.items() if cell in ".*+"}
        player = next(at for at, cell in cells.items() if cell in "@+")
        self.start = (player, frozenset(at for at, cell in cells.items() if cell in "$*"))

    def after(self, state: tuple[Cell, frozenset[Cell]], action: str) -> tuple[Cell, frozenset[Cell]]:
        if action not in MOVES:
            return state
        ((y, x), boxes), (down, right) = state, MOVES[action]
        ahead, beyond = (y + down, x + right), (y + 2 * down, x + 2 * right)
        if ahead in self.walls or (ahead in boxes and (beyond in boxes or beyond in self.walls)):
            return state
        return ahead, (boxes - {ahead} | {beyond}) if ahead in boxes else boxes

    def is_done(self, state: tuple[Cell, frozenset[Cell]]) -> bool:
        return state[1] <= self.targets


@lru_cache(maxsize=4096)
def _game(env: str, text: str) -> Any:
    return Lake(text) if env == "frozenlake" else Warehouse(text)


@lru_cache(maxsize=1 << 16)
def _fewest(env: str, text: str, state: Hashable) -> float:
    game, seen, queue = _game(env, text), {state}, deque([(state, 0)])
    while queue:
        at, moves = queue.popleft()
        if game.is_done(at):
            return moves
        for action in MOVES:
            following = game.after(at, action)
            if following not in seen:
                seen.add(following)
                queue.append((following, moves + 1))
    return FAR


# One failure


class Checker:
    """Facts of one failure, whose pivot step is proved elsewhere."""

    def __init__(self, episode: FailedEpisode, step: int, mode: str, *, by_room: bool = False) -> None:
        """Take the pivot of an episode; ``by_room`` counts the turns of a walk by its room, not by metres."""
        self.episode, self.step, self.mode, self.env, self.by_room = episode, step, mode, episode.env, by_room
        self.action = episode.actions[step]
        self.budget = {"before": episode.horizon - step, "after": episode.horizon - step - 1}
        self.info = episode.infos[step]
        self.read: dict[str, str | None] = {}

    @cached_property
    def states(self) -> list[Any]:
        """The states of a puzzle, or the poses of a walk through an embedded room."""
        start = self.room.start if self.env == "navigation" else self.game.start  # pyright: ignore[reportOptionalMemberAccess]
        states = [start]
        for action in self.episode.actions:
            states.append(self.after(states[-1], action))
        return states

    @cached_property
    def game(self) -> Any:
        return _game(self.env, self.episode.initial_state)

    @cached_property
    def room(self) -> BruteRoom | None:
        data = json.loads(self.episode.initial_state)
        return BruteRoom(data) if "room" in data else None

    def after(self, state: Any, turn: str) -> Any:
        """Return the state after a turn of one or several moves; success ends the turn."""
        if self.env == "navigation":
            return self.room.after(state, turn)  # pyright: ignore[reportOptionalMemberAccess]
        for action in turn.split("|"):
            state = state if self.game.is_done(state) else self.game.after(state, action)
        return state

    @cached_property
    def measures(self) -> list[float]:
        """Metres or scores before each action and at the end; missing values repeat the last one."""
        if self.env == "svg":
            return [0.0, *(info["average_score"] for info in self.episode.infos)]
        state = json.loads(self.episode.initial_state)
        agent, target = (state[name]["position"] for name in ("agent", "target"))
        measures = [state.get("initial_dist", math.hypot(agent["x"] - target["x"], agent["z"] - target["z"]))]
        for info in self.episode.infos:
            measures.append(measures[-1] if info.get("dist") is None else info["dist"])
        return measures

    @cached_property
    def stages(self) -> list[int]:
        kinds = {"align": 2, "place": 3, "stack": 3, "drawer": 2}
        return [kinds[json.loads(self.episode.initial_state)["task"]]] + [
            i["remaining_stages"] for i in self.episode.infos
        ]

    def needed(self, when: str) -> float:
        """Return the moves or stages that the goal takes before or after the pivot step."""
        index = self.step + (when == "after")
        if self.env == "primitiveskill":
            return self.stages[index]
        if self.env == "navigation" and not self.by_room:
            return math.ceil(max(0.0, self.measures[index] - 1.5) / 0.5 - 1e-6)
        return self.turns_from(self.states[index])

    def turns_from(self, state: Any) -> float:
        """Return the turns from a state of a puzzle to its goal, or from a pose in a room to its target."""
        if self.env == "navigation":
            turns = self.room.turns(state) if self.room else None
            return FAR if turns is None else turns
        moves = _fewest(self.env, self.episode.initial_state, state)
        return moves if moves == FAR else math.ceil(moves / self.episode.env_config.get("actions_per_turn", 1))

    def is_safe(self, action: str) -> bool:
        """Whether an action at the pivot step keeps the goal within reach."""
        return self.turns_from(self.after(self.states[self.step], action)) <= self.budget["after"]

    def is_best(self, action: str) -> bool:
        """Whether an action at the pivot step begins a shortest plan that succeeds in time."""
        if self.env == "primitiveskill":
            return self.completes(action)
        now, then = self.states[self.step], self.after(self.states[self.step], action)
        return self.turns_from(then) == self.turns_from(now) - 1 and self.is_safe(action)

    def completes(self, action: str) -> bool:
        """Whether PrimitiveSkill is completed in time by an action at the pivot step and a perfect player after it."""
        kind = plugins.load("environments", self.env)
        game = kind(kind.config_type(**self.episode.env_config), render_mode=None)
        game.draw_frames = False
        try:
            game.reset(options={"state": self.episode.initial_state})
            for logged in self.episode.actions[: self.step]:
                game.step(logged)
            while True:
                _, _, success, truncated, _ = game.step(action)
                if success or truncated:
                    return success
                action = expert_action(game.state.kind, game.state.scene)
        finally:
            game.close()

    def was_hopeless(self) -> bool:
        return self.step == 0 and self.needed("before") > self.budget["before"]

    # Reading

    def false_statements(self, text: str) -> list[str]:
        """Return the sentences of a text that are false or not understood."""
        return [f"{s} [{why}]" for s in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text) if (why := self.problem(s))]

    def problem(self, sentence: str) -> str | None:
        """Return what is wrong with a sentence, or None."""
        if sentence in GENERAL:
            return None
        if sentence not in self.read:
            answers = list(self.answers(sentence))
            wrong = [name for name, holds in answers if not holds]
            self.read[sentence] = ", ".join(wrong) if wrong else None if len(answers) > 1 else "not understood"
        return self.read[sentence]

    def answers(self, said: str) -> Iterator[tuple[str, bool]]:
        """Yield every claim that the sentence makes, with its truth; naming the step alone claims nothing."""
        if self.env == "svg" and (seen := list(self.drawn(said))):
            yield "step", set(re.findall(r"[Ss]tep (\d+)", said)) == {str(self.step)}
            yield from seen
            return
        begin = re.match(rf"(?:At|Up to) step {self.step}, ", said)
        rest = said[begin.end() :] if begin is not None else ""
        for claim, patterns in ADVICE.items():
            for match in (re.fullmatch(pattern, rest) for pattern in patterns):
                if match is not None:
                    yield "step", True
                    yield from self.advice(claim, match.groupdict())
                    return
        yield "step", all(int(number) == self.step for number in re.findall(r"[Ss]tep (\d+)", said))
        yield from self.amounts(said)
        for pattern, holds in self.rules().items():
            if re.search(pattern, said):
                yield pattern, holds()
        for noun, action in re.findall(
            r"(?<!\d )\b([Pp]ush(?:ed)?|[Mm]ov(?:e|ing)|(?:action|turn)(?: was)?|repeated|reports that|log,|says that|"
            r"Step \d+,) "
            rf"({ACT})(?=[ ,.])",
            said,
        ):
            yield "logged action", action == self.action
            yield "noun", noun[:4] not in ("acti", "turn") or (noun[:4] == "turn") == ("|" in action)

    def drawn(self, said: str) -> Iterator[tuple[str, bool]]:
        """Yield the claims of a sentence about the shapes of the target and of the last drawing."""
        payload = self.episode.payloads[self.step]
        if payload is not None and self.info["valid_svg"]:
            yield from claims(said, json.loads(self.episode.initial_state)["target"], json.loads(payload))

    def amounts(self, said: str) -> Iterator[tuple[str, bool]]:
        """Yield the claims of a sentence about turns, moves, stages and measurements."""
        early = (
            r"[Bb]efore step|[Uu]ntil step|[Jj]ust before|the start|at the start|too small for this room|At the start|"
            r"The task begins"
        )
        when = "before" if re.search(early, said) else "after"
        turns = re.findall(r"(\d+) turns?\b", said)
        needs = re.findall(r"(\d+) (?:moves?|stages?|actions?)\b", said)
        if self.episode.env_config.get("actions_per_turn", 1) > 1:  # the need is also given in turns
            needed, left = self.needed(when), self.budget[when]
            yield "turns", {int(number) for number in turns} <= {needed, left} and len(turns) in (0, 2)
        else:
            yield from (("turns", int(number) == self.budget[when]) for number in turns)
            yield from (("needed", float(number) == self.needed(when)) for number in needs)
        more = r"more than the|but (?:the (?:shortest|goal|budget)|the [\d.]+ m)|too small|smaller than"
        enough = r"could (?:still )?be (?:solved|reached)|can still be solved|solvable|are enough"
        if turns and re.search(more, said):
            yield "too much", self.needed(when) > self.budget[when]
        elif turns and re.search(enough, said):
            yield "enough", self.needed(when) <= self.budget[when]
        for number in re.findall(r"([\d.]+) m\b", said):
            yield "metres", self.shows(number, self.measures[self.step + (when == "after")])
        if self.env == "svg" and (scores := re.findall(r"\b[01]\.\d+", said)):
            yield "scores", self.scores(said, scores)

    def scores(self, said: str, scores: list[str]) -> bool:
        before, after = self.measures[self.step], self.measures[self.step + 1]
        swapped = re.search(r"(?:less|more) than the|turn before it", said)
        values = [after, before] if swapped else [before, after]
        if len(scores) == 1:
            values = [before] if re.search(r"[Bb]efore step", said) else [after]
        return all(map(self.shows, scores, values))

    @staticmethod
    def shows(number: str, value: float) -> bool:
        """Whether a printed number is the rounded value."""
        return abs(float(number) - value) <= 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9

    def advice(self, claim: str, named: dict[str, str | None]) -> Iterator[tuple[str, bool]]:
        """Yield the claims of an advice: the actions that it names, and its assumptions."""
        bad, good = named.get("bad"), named.get("good")
        if bad is not None:
            yield "the logged action", bad == self.action not in ("invalid", "empty")
        if claim.startswith("better") and bad is not None and self.env != "primitiveskill":
            yield "the logged action lost it", not self.is_safe(bad)
        if claim.startswith(("better", "in place")) and good is not None:
            yield f"{good} is best", good != self.action and self.is_best(good)
        elif good is not None:
            yield f"{good} is safe", good == self.action if self.env == "primitiveskill" else self.is_safe(good)
        if claim in self.takes_for_granted:
            yield claim, self.takes_for_granted[claim]()
        elif self.env == "svg":
            yield claim, self.is_remedy(claim)

    @property
    def takes_for_granted(self) -> dict[str, Callable[[], bool]]:
        """Return a check of the episode for each claim of an advice."""
        t = self.step

        return {
            "better than a push": lambda: self.states[t][1] != self.states[t + 1][1],
            "in place of no action": lambda: self.action in ("invalid", "empty"),
            "no action": lambda: self.action in ("invalid", "empty"),
            "hopeless": self.was_hopeless,
            "lost before": lambda: self.turns_from(self.states[t]) > self.budget["before"],
            "too many stages": self.was_hopeless,
            "incomplete": lambda: self.needed("after") <= self.budget["after"],
            "no stage": lambda: self.stages[t + 1] == self.stages[t],
            "late": lambda: not self.completes(self.action),
            "right": lambda: self.completes(self.action),
        }

    def is_remedy(self, claim: str) -> bool:
        """Whether an advice about documents answers what was wrong with the submission."""
        episode, t = self.episode, self.step
        made = (episode.submission_outcomes or ["?"] * (t + 1))[t]
        reply, finish = (episode.reply_outcomes or ["?"] * (t + 1))[t], (episode.finish_reasons or ["?"] * (t + 1))[t]
        empty = self.action == "empty"
        remedies = {
            "no document": empty and finish != "length" and reply != "tag_in_think",
            "cut off": empty and finish == "length",
            "in the thought": empty and reply == "tag_in_think",
            "not SVG": made == "not_svg",
            "not drawn": not empty and not self.info["valid_svg"] and made not in ("not_svg", "not_text", "forbidden"),
            "not text": made == "not_text",
            "forbidden": made == "forbidden",
            "not the target": self.info["valid_svg"],
        }
        return remedies[claim]

    def rules(self) -> dict[str, Callable[[], bool]]:
        """Return the truth of other claims by the words that make them."""
        episode, t = self.episode, self.step
        unusable = self.action in ("invalid", "empty")
        common: dict[str, Callable[[], bool]] = {
            r"no usable action|without a usable action": lambda: unusable,
            r"as at the step before|repeated": lambda: episode.actions[t - 1] == self.action and t > 0,
        }
        return common | getattr(self, f"_{self.env}")()

    def _still(self) -> bool:
        return self.action != "invalid" and self.states[self.step] == self.states[self.step + 1]

    def _frozenlake(self) -> dict[str, Callable[[], bool]]:
        return {
            r"changed nothing|no effect": self._still,
            r"ended in a hole|led into a hole|falling into a hole": lambda: (
                self.game.cell(self.states[self.step + 1]) == "H"
            ),
            r"no path over ice led|cut the player off|no way over ice leads": lambda: self.needed("after") == FAR,
            r"^No path over ice|cannot be reached from the start|cut off from the goal": lambda: (
                self.needed("before") == FAR
            ),
        }

    def _sokoban(self) -> dict[str, Callable[[], bool]]:
        (_, before), (player, after) = self.states[self.step], self.states[self.step + 1]
        pushed = next(iter(after - before), None)

        def wall(action: str, at: Cell | None) -> bool:
            return at is not None and (at[0] + MOVES[action][0], at[1] + MOVES[action][1]) in self.game.walls

        def corner() -> bool:
            sides = (wall("up", pushed) or wall("down", pushed)) and (wall("left", pushed) or wall("right", pushed))
            return sides and pushed not in self.game.targets

        del player
        return {
            r"changed nothing|no effect": self._still,
            r"\bpush(?:ed)? (?:up|down|left|right)|Pushed": lambda: pushed is not None,
            r"no number of moves solves|made the room unsolvable|could no longer be solved": lambda: (
                self.needed("after") == FAR
            ),
            r"^No number|unsolvable from the start|^From its first": lambda: (
                self.needed("before") == FAR and self.step == 0
            ),
            r"corner": corner,
            r"against a wall": lambda: wall(self.action, pushed),
        }

    def _navigation(self) -> dict[str, Callable[[], bool]]:
        flags = (self.info.get("moved"), self.info.get("last_action_success"))
        t, metres = self.step, self.measures
        return {
            r"that \w+ at step \d+ failed|did not succeed|could not be carried out": lambda: False in flags,
            r"no nearer|did not shorten|as far away as before": lambda: metres[t + 1] >= metres[t] - 1e-9,
            r"noticeabl[ey]": lambda: t >= 5 and round(metres[t - 4] - metres[t + 1], 9) < 0.1,
        }

    def _primitiveskill(self) -> dict[str, Callable[[], bool]]:
        t, turn = self.step, re.findall(r"(pick|place|push)\(", self.action)
        earlier = any("pick(" in action for action in self.episode.actions[:t])
        gained = self.stages[t + 1] < self.stages[t]
        return {
            r"no new stage|no further stage|achieving a new stage": lambda: not gained,
            r"held no pick|held no command|answer without a command": lambda: not turn or self.info["legal"] is False,
            r"before any pick|No pick had been|no pick had been": lambda: not earlier and turn[0] != "pick",
            r"first stage of the task is an object in the hand": lambda: "align" not in self.episode.initial_state,
            r"a pick and a place": lambda: "pick" in turn and "place" in turn,
            r"no stage was open|All stages had been|every stage had been": lambda: self.stages[t + 1] == 0,
        }

    def _svg(self) -> dict[str, Callable[[], bool]]:
        t, episode = self.step, self.episode
        made = (episode.submission_outcomes or [None] * (t + 1))[t]
        reply, finish = (episode.reply_outcomes or [""] * (t + 1))[t], (episode.finish_reasons or [""] * (t + 1))[t]
        empty, before, after = self.action == "empty", self.measures[t], self.measures[t + 1]
        return {
            r"held no answer|no answer could be read|without a readable answer": lambda: empty,
            r"broke off|cut off": lambda: empty and finish == "length",
            r"the thought": lambda: empty and reply == "tag_in_think",
            r"no SVG document|as one SVG document": lambda: empty and reply == "not_an_action",
            r"well.formed|could not be read as SVG": lambda: made == "not_svg",
            r"longer than what is read|exceeded the length": lambda: made == "too_large",
            r"plain text|bytes that are no text": lambda: made == "not_text",
            r"something outside": lambda: made == "forbidden",
            r"too long to draw|exceeded its time": lambda: made == "timeout",
            r"too much memory|exceeded its memory": lambda: made == "memory",
            r"could not be drawn": lambda: not empty and not self.info["valid_svg"],
            r"fell from|went down|less than": lambda: after < before,
            r"hardly changed|turn before it|The score was .* after it": lambda: abs(round(after - before, 9)) <= 0.01,
            r"rose|more than": lambda: after > before,
            r"the document of the previous step again|the same as the previous one": lambda: (
                episode.payloads[t] is not None and episode.payloads[t] == episode.payloads[t - 1]
            ),
            r"match has 1|short of 1|not the target": lambda: after < 1 and self.info["valid_svg"],
        }
