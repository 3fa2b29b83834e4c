"""The exact Sokoban solver against networkx for small rooms and A* in Python for large ones.

All sides get the same episodes as plain data and keep nothing between them. Levels are carved rooms with solution
lengths sampled from a range; episodes are walks with random persistence. An A* run that takes longer than its time
limit counts as that limit, so the ratio is a lower bound. Memory is measured in separate processes.
"""

import heapq
import json
import random
import resource
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from statistics import mean, median
from time import perf_counter, process_time
from typing import Any

import networkx
from pivot.benchmarks.harness import Row, output_of
from pivot.solvers.base import Case, Unsolved, Verdict
from pivot.solvers.credit import credit
from pivot.solvers.puzzles import ACTIONS
from pivot.solvers.sokoban import SokobanSolver, sample_level

SMALL_EPISODES, SMALL_RUN = 1600, 80
LARGE_LEVELS, EPISODES_PER_LEVEL = 60, 5
ASTAR_EPISODES, ASTAR_SECONDS = 16, 20.0
HUGE_LEVELS = 12
CREDIT_ROUNDS, CREDIT_SECONDS = 20, 0.010
LOST = 10**9

State = tuple[int, frozenset[int]]


def rows() -> Iterator[Row]:
    """Yield one row per claim: seconds (or megabytes) of ours and of the baseline or limit."""
    rng = random.Random(0)
    SokobanSolver().certify([Case("######\n#@ $.#\n######", ["left"], 9)])  # compiled or loaded before the clock starts
    large = _episodes(10, 4, (15, 90), 120, LARGE_LEVELS, EPISODES_PER_LEVEL, rng)
    huge = _episodes(13, 5, (10, 24), 120, HUGE_LEVELS, 2, rng)
    yield _small(rng)
    yield _credit(rng)
    yield from _large(large)
    yield _memory("peak, 10x10, 4 boxes", large, 300)
    yield _memory("peak, 13x13, 5 boxes", huge, 1000)


def _row(name: str, ours: float, baseline: float, required: float, passed: bool, note: str) -> Row:
    return Row(
        name=name, ours=ours, baseline=baseline, ratio=baseline / ours, required=required, passed=passed, note=note
    )


def _small(rng: random.Random) -> Row:
    cases = _episodes(6, 1, (1, 5), 9, SMALL_EPISODES // 8, 8, rng)
    ours, baseline = [], []
    for begin in range(0, len(cases), SMALL_RUN):  # short runs of either side alternate: a busy machine slows both
        run = cases[begin : begin + SMALL_RUN]
        start = perf_counter()
        answers = SokobanSolver().certify(run)
        ours.append((perf_counter() - start) / len(run))
        start = perf_counter()
        labels = [_networkx_label(case) for case in run]
        baseline.append((perf_counter() - start) / len(run))
        _check(answers, [label[:2] for label in labels])
        for answer, label in zip(answers, labels, strict=True):
            if isinstance(answer, Verdict) and answer.witness != label[2]:
                raise AssertionError(f"the witnesses differ: {answer.witness} and {label[2]}")
    one, other = median(ours), median(baseline)
    note = f"seconds per episode, {len(cases)} episodes; baseline: networkx, one graph and one pass each"
    return _row("label 6x6, 1 box", one, other, 10.0, other / one >= 10, note)


def _credit(rng: random.Random) -> Row:
    cases = _episodes(6, 1, (1, 5), 9, 16, 8, rng)
    names = ("initial_state", "actions", "horizon")
    episodes = [{name: getattr(case, name) for name in names} for case in cases]
    credit("sokoban", episodes)
    seconds = []
    for _ in range(CREDIT_ROUNDS):
        start = process_time()
        credit("sokoban", episodes)
        seconds.append(process_time() - start)
    ours = median(seconds)
    note = f"CPU seconds for {len(episodes)} episodes of 9 turns, in memory; limit 10 ms"
    return _row("credit 6x6, 1 box", ours, CREDIT_SECONDS, 1.0, ours <= CREDIT_SECONDS, note)


def _large(cases: list[Case]) -> list[Row]:
    solver = SokobanSolver()
    seconds, answers = [], []
    for case in cases:
        start = perf_counter()
        answers += solver.certify([case])
        seconds.append(perf_counter() - start)
    chosen = random.Random(1).sample(range(len(cases)), ASTAR_EPISODES)
    slow, cut, agreed, answered = 0.0, 0, [], []
    for index in chosen:
        start = perf_counter()
        label = AStar(cases[index].initial_state, start + ASTAR_SECONDS).label(cases[index])
        slow += min(perf_counter() - start, ASTAR_SECONDS)
        if label is None:
            cut += 1
        else:
            agreed.append(label)
            answered.append(answers[index])
    _check(answered, agreed)
    ours, baseline = mean(seconds[index] for index in chosen), slow / len(chosen)
    note = (
        f"seconds per episode of horizon 120, {len(chosen)} episodes; A* stopped after {ASTAR_SECONDS:.0f} s in {cut}"
    )
    typical = mean(seconds)
    tail = sorted(seconds)[-max(1, len(seconds) // 100) - 1]
    modes = [answer.failure_mode if isinstance(answer, Verdict) else answer.reason for answer in answers]
    counts = ", ".join(f"{modes.count(mode)} {mode}" for mode in sorted(set(modes)))
    return [
        _row("pivot and mode 10x10, 4 boxes", ours, baseline, 100.0, baseline / ours >= 100, note),
        _row(
            "99th percentile, 10x10, 4 boxes",
            tail,
            20 * typical,
            1.0,
            tail <= 20 * typical,
            f"seconds; baseline: 20 means; mean {typical:.4f}, max {max(seconds):.3f}; {len(cases)} episodes: {counts}",
        ),
    ]


def _memory(name: str, cases: list[Case], bound: float) -> Row:
    """Label ``cases`` in a separate process; return the growth of its memory, in MB."""
    plain = [[case.initial_state, list(case.actions), case.horizon] for case in cases]
    result = json.loads(output_of([sys.executable, str(Path(__file__).resolve())], json.dumps(plain)))
    note = f"megabytes above the start, {len(cases)} episodes of which {result['unknown']} hit the state cap"
    return _row(name, result["grown"], bound, 1.0, result["grown"] <= bound, note)


def _measure() -> None:
    """Read cases from standard input, label them, and write the growth of the largest resident size."""
    cases = [Case(*fields) for fields in json.load(sys.stdin)]
    SokobanSolver().certify([Case("######\n#@ $.#\n######", ["left"], 9)])
    before = _peak()
    answers = [SokobanSolver().certify([case])[0] for case in cases]
    grown = (_peak() - before) / 1024
    unknown = sum(isinstance(answer, Unsolved) for answer in answers)
    sys.stdout.write(json.dumps({"grown": max(grown, 0.1), "unknown": unknown}))


def _peak() -> float:
    """Return the largest resident size in kB: of this program if /proc exists, else of the process."""
    status = Path("/proc/self/status")
    if status.exists():
        return float(status.read_text().split("VmHWM:")[1].split()[0])
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _check(answers: list[Verdict | Unsolved], labels: list[tuple[int, str]]) -> None:
    for answer, label in zip(answers, labels, strict=True):
        if isinstance(answer, Verdict) and (answer.pivot_step, answer.failure_mode) != label:
            raise AssertionError(f"the baseline says {label}, the solver {answer}")


# Levels and episodes


def _carved_room(side: int, targets: int, rng: random.Random) -> str:
    """Return a room carved by a random walk, 55 % of the inside (80 % of a small one), with targets in the floor."""
    inside = side - 2
    y, x = rng.randint(1, inside), rng.randint(1, inside)
    floor = {(y, x)}
    while len(floor) < (0.8 if side < 8 else 0.55) * inside * inside:
        dy, dx = rng.choice(((0, 1), (1, 0), (0, -1), (-1, 0)))
        for _ in range(rng.randint(1, 3)):
            y, x = min(max(y + dy, 1), inside), min(max(x + dx, 1), inside)
            floor |= {(y, x), (min(y + 1, inside), x)}
    goals = set(rng.sample(sorted(floor), targets))
    return "\n".join(
        "".join("." if (y, x) in goals else " " if (y, x) in floor else "#" for x in range(side)) for y in range(side)
    )


def _episodes(
    side: int, boxes: int, length: tuple[int, int], horizon: int, levels: int, each: int, rng: random.Random
) -> list[Case]:
    """Return failed episodes of random walkers; each walker has its own persistence."""
    cases: list[Case] = []
    while len(cases) < levels * each:
        text = sample_level(_carved_room(side, boxes, rng), boxes, *length, rng)
        if text is None:
            continue
        room = Room(text)
        for _ in range(each):
            skill = rng.choice((0.0, 0.4, 0.8))
            state, actions, direction = room.start, [], rng.choice(ACTIONS)
            while len(actions) < horizon:
                # A purely random walker hardly ever leaves its corner.
                direction = direction if rng.random() < skill else rng.choice(ACTIONS)
                following = room.after(state, direction)
                if following[1] <= room.targets:
                    actions.append("invalid")
                    continue
                actions.append(direction)
                state = following
            cases.append(Case(text, actions, horizon))
    return cases


class Room:
    """A level read for the baselines: cells are numbers, the wall is -1."""

    def __init__(self, text: str) -> None:
        """Read ``text``."""
        places = {(y, x): s for y, line in enumerate(text.split("\n")) for x, s in enumerate(line) if s != "#"}
        number = {place: cell for cell, place in enumerate(sorted(places))}
        deltas = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
        self.near = {a: [number.get((y + dy, x + dx), -1) for y, x in sorted(places)] for a, (dy, dx) in deltas.items()}
        self.moves = [self.near[action] for action in ACTIONS]
        self.back = [self.near[action] for action in ("down", "up", "right", "left")]
        self.size = len(places)
        self.targets = frozenset(number[place] for place, symbol in places.items() if symbol in ".*+")
        boxes = frozenset(number[place] for place, symbol in places.items() if symbol in "$*")
        self.start: State = (next(number[place] for place, symbol in places.items() if symbol in "@+"), boxes)

    def after(self, state: State, action: str) -> State:
        """Return the state after one action."""
        return state if action == "invalid" else self.step(state, self.near[action])

    @staticmethod
    def step(state: State, steps: list[int]) -> State:
        """Return the state after a move by the table ``steps``."""
        player, boxes = state
        ahead = steps[player]
        if ahead < 0:
            return state
        if ahead in boxes:
            behind = steps[ahead]
            if behind < 0 or behind in boxes:
                return state
            return ahead, boxes - {ahead} | {behind}
        return ahead, boxes

    def replay(self, actions: Any) -> list[State]:
        """Return all states of an episode."""
        states = [self.start]
        for action in actions:
            states.append(self.after(states[-1], action))
        return states


# Baseline for small rooms


def _networkx_label(case: Case) -> tuple[int, str, tuple[str, ...] | None]:
    """Label one episode with one reversed state graph and one breadth-first pass."""
    room = Room(case.initial_state)
    graph = networkx.DiGraph()
    waiting, seen = [room.start], {room.start}
    while waiting:
        state = waiting.pop()
        if state[1] <= room.targets:
            graph.add_edge("solved", state)
        for steps in room.moves:
            following = room.step(state, steps)
            graph.add_edge(following, state)
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    needed = dict(networkx.single_source_shortest_path_length(graph, "solved")) if "solved" in graph else {}
    states = room.replay(case.actions)
    distance = [needed.get(state, LOST) - 1 for state in states]
    pivot = next((t for t in range(len(case.actions)) if distance[t + 1] > case.horizon - 1 - t), len(case.actions) - 1)
    plan, state = [], states[pivot]
    while 1 < needed.get(state, LOST) < LOST:
        action = next(a for a in ACTIONS if needed.get(room.after(state, a), LOST) < needed[state])
        plan.append(action)
        state = room.after(state, action)
    return pivot, "timeout" if distance[pivot + 1] < LOST - 1 else "deadlock", tuple(plan)


# Baseline for large rooms


class AStar:
    """Distances one at a time: A* over moves with dead squares and the cheapest matching of boxes to targets."""

    def __init__(self, text: str, stop: float) -> None:
        """Prepare the push distances of ``text``; searches end when the clock passes ``stop``."""
        self.room, self.stop = Room(text), stop
        self.pushes = []
        for target in self.room.targets:
            distance, queue = {target: 0}, [target]
            for cell in queue:
                for back in self.room.back:
                    before = back[cell]
                    if before >= 0 and before not in distance and back[before] >= 0:
                        distance[before] = distance[cell] + 1
                        queue.append(before)
            self.pushes.append([distance.get(cell, LOST) for cell in range(self.room.size)])
        self.orders = list(permutations(range(len(self.pushes)), len(self.room.start[1])))
        self.estimates: dict[frozenset[int], int] = {}

    def estimate(self, boxes: frozenset[int]) -> int:
        """Return the fewest pushes of any matching of boxes to targets; LOST or more when there is none."""
        if boxes not in self.estimates:
            tables = [[row[box] for row in self.pushes] for box in boxes]
            self.estimates[boxes] = min(
                sum(table[i] for table, i in zip(tables, order, strict=True)) for order in self.orders
            )
        return self.estimates[boxes]

    def distance(self, start: State, bound: int) -> int:
        """Return the fewest moves, or LOST when these are more than ``bound``.

        Raises:
            TimeoutError: the clock passed ``stop``.
        """
        first = self.estimate(start[1])
        if first > bound:
            return LOST
        best = {start: 0}
        queue = [(first, 0, start[0], start[1])]
        popped = 0
        while queue:
            total, minus_moves, player, boxes = heapq.heappop(queue)
            moves = -minus_moves
            if best[player, boxes] < moves:
                continue
            if boxes <= self.room.targets:
                return moves
            popped += 1
            if popped % 512 == 0 and perf_counter() > self.stop:
                raise TimeoutError
            for steps in self.room.moves:
                following = self.room.step((player, boxes), steps)
                if best.get(following, LOST) > moves + 1:
                    total = moves + 1 + self.estimate(following[1])
                    if total <= bound and total < LOST:
                        best[following] = moves + 1
                        heapq.heappush(queue, (total, -moves - 1, *following))
        return LOST

    def label(self, case: Case) -> tuple[int, str] | None:
        """Return pivot and mode, by bisection over the steps; None when the time is over."""
        states = self.room.replay(case.actions)
        try:
            # The index of the first state without success in its budget is in (low, high].
            low, high = -1, len(states) - 1
            while high - low > 1:
                middle = (low + high) // 2
                if self.distance(states[middle], case.horizon - middle) < LOST:
                    low = middle
                else:
                    high = middle
            pivot = max(high - 1, 0)
            return pivot, "timeout" if self.distance(states[pivot + 1], LOST - 1) < LOST else "deadlock"
        except TimeoutError:
            return None


if __name__ == "__main__":
    _measure()
