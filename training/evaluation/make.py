"""Makes the benchmark from a secret: levels from the secret, rollouts from scripted players, truths from the solvers.

Nothing is downloaded. The secret of the public benchmark is published, so everyone makes the same one; that of a
private benchmark is 128 random bits. Half of the levels is held out for its items, of which no two share a level; the
other half is for worked examples and for fitting the baselines.
"""

import hashlib
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...core.errors import TrainingError
from ...core.identity import below, derive_seed
from ...core.images import container_format, decode
from ...core.progress import Reporter
from ...core.storage import open_storage
from ...datasets.store.config import environment, solver_settings, solver_type
from ...datasets.store.splits import TRAIN, VALIDATION
from ...datasets.store.store import Store
from ...environments.base import EnvProfile
from ...labeling.analyzer import LOG_HEADING, how_to_read, one_line
from ...labeling.domains import domain_of
from ...solvers.base import Solver
from .baselines import SILENT, measure_baselines
from .controls import true_reply
from .episodes import (
    SOLVERS,
    Certified,
    Twins,
    check_ready,
    read_episodes,
    simulator_versions,
    store_configs,
    store_of,
    twin_log,
)
from .items import (
    EXAMPLES,
    LOGS,
    PICTURES,
    PRIVATE,
    SECRET,
    VERSION,
    Benchmark,
    Example,
    Item,
    Question,
    Truth,
    pixels_digest,
    plugin_of,
    read_secret,
    write_benchmark,
)

LEVELS: Mapping[str, int] = {
    **dict.fromkeys(("sokoban", "frozenlake", "navigation", "primitiveskill", "svg"), 2000),
    **dict.fromkeys(("gym:MiniGrid-LavaCrossingS9N2-v0", "gym:Taxi-v4"), 400),
}
"""Number of levels per environment, each played once."""

OTHER_LEVELS = 400
"""Number of levels of any other gymnasium environment."""

PUBLIC_SECRET = hashlib.sha256(f"PIVOT benchmark {VERSION}".encode()).hexdigest()[:32]
"""Secret of the public benchmark, which everyone knows."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question with a log, and how many items about failures and about other episodes the whole benchmark has."""

    question: Question
    log: str
    failures: int
    others: int = 0


ASKS = (
    Ask("twin", LOGS[0], 100),
    Ask("locate", LOGS[0], 150, 40),
    Ask("locate", LOGS[1], 150, 40),
    Ask("safe", LOGS[1], 100),
    Ask("credit", LOGS[1], 100, 25),
)
"""Items per environment; an episode is in one item, or in one pair of twins."""

Build = Callable[[Mapping[str, Any], Path], Any]
"""Builds a store from a config, or resumes its build."""


def make_benchmark(
    root: Path,
    build: Build,
    *,
    levels: Mapping[str, int] = LEVELS,
    share: float = 1.0,
    private: bool = False,
    learned: bool = True,
    reporter: Reporter = SILENT,
) -> Benchmark:
    """Build the stores of a benchmark, or resume their build, and write the benchmark.

    Args:
        root: folder of the benchmark.
        build: builds or resumes a store.
        levels: number of levels per environment of the whole benchmark.
        share: share of the levels and items that is made.
        private: whether the secret is random.
        learned: whether the boosted trees are among the baselines.
        reporter: receives the progress, in episodes.

    Raises:
        PivotError: an environment cannot be made, a store cannot be built, or the folder cannot be written.
        TrainingError: the folder was begun with the other kind of secret, or an environment has no failure.
    """
    counts = {env: max(8, round(share * count)) for env, count in levels.items()}
    check_ready(counts)
    secret = _secret_of(root, private)
    for name, config in store_configs(counts, derive_seed("benchmark", secret)).items():
        build(config, root / name)
    items: list[Item] = []
    truths: list[Truth] = []
    examples: list[Example] = []
    fitting: dict[str, list[Certified]] = {}
    for env in counts:
        store = Store.open(root / store_of(env))
        certified = read_episodes(store, env)
        fitting[env] = certified[TRAIN]
        maker = ItemMaker(root, env, secret, store.run.envs[plugin_of(env)].solver())
        for item, truth in maker.items(certified, share, reporter):
            items.append(item)
            truths.append(truth)
        examples += maker.examples(certified[TRAIN])
        if not any(item.env == env for item in items):
            raise TrainingError(f"{root}: found no failure of a held-out level of {env}, expected some; raise --scale")
    storage = open_storage(root)
    pictures = {name for item in (*items, *(each.item for each in examples)) for name in item.pictures}
    for name in sorted(pictures):  # times and places on disk say nothing about episodes either
        storage.write_bytes(name, storage.read_bytes(f"{PRIVATE}/{name}"))
    storage.delete(f"{PRIVATE}/{PICTURES}")
    order = sorted(range(len(items)), key=lambda index: items[index].item_id)  # says nothing about episodes
    items, truths = [items[index] for index in order], [truths[index] for index in order]
    facts = {
        "version": VERSION,
        "private": private,
        "share": share,
        "items": {env: sum(item.env == env for item in items) for env in counts},
        "versions": simulator_versions(counts),
    }
    return write_benchmark(
        root,
        facts,
        items,
        truths,
        examples,
        lambda benchmark: measure_baselines(
            benchmark, lambda env, log: [each.fitting(log) for each in fitting[env]], learned=learned, reporter=reporter
        ),
        secret,
    )


def _secret_of(root: Path, private: bool) -> str:
    """Return the secret of a benchmark; a random one is drawn once per folder, so that a build resumes."""
    storage = open_storage(root)
    if storage.stat(SECRET) is None:
        storage.write_json(SECRET, {"secret": secrets.token_hex(16) if private else PUBLIC_SECRET})
    secret = read_secret(storage)
    if (secret != PUBLIC_SECRET) != private:
        raise TrainingError(
            f"{root} was begun {'without' if private else 'with'} --private, expected the same choice again; run the "
            "same command again, or choose another folder"
        )
    return secret


def check_made(benchmark: Benchmark, levels: Mapping[str, int], share: float, private: bool) -> Benchmark:
    """Return a benchmark that was made earlier, if it has the requested settings.

    Raises:
        TrainingError: its environments, its share or the kind of its secret differ.
    """
    facts = benchmark.facts
    settings = {"environments": sorted(facts["items"]), "share": facts["share"], "private": facts["private"]}
    expected = {"environments": sorted(levels), "share": share, "private": private}
    if settings != expected:
        raise TrainingError(
            f"{benchmark.root} holds a benchmark of {settings}, expected {expected}; choose another folder, or use it"
        )
    return benchmark


class ItemMaker:
    """Makes items of one environment and writes their pictures."""

    def __init__(self, root: Path, env: str, secret: str, solver: Solver) -> None:
        self.env = env
        self._storage = open_storage(root)
        self._secret = secret
        self._solver = solver
        self._profile = environment(plugin_of(env)).profile

    def hash(self, *parts: str) -> str:
        """Return a name that nobody can compute without the secret."""
        return hashlib.sha256("/".join((self._secret, self.env, *parts)).encode()).hexdigest()[:24]

    def dealt(self, certified: Sequence[Certified], share: float) -> dict[Ask, list[Certified]]:
        """Deal episodes to the questions, each to one; too few of them are shared in proportion."""
        exact = self._solver.kind == "exact"
        asks = [ask for ask in ASKS if exact or ask.question in ("locate", "credit")]
        asks = [replace(ask, log=twin_log(self._profile)) if ask.question == "twin" else ask for ask in asks]
        shuffled = sorted(certified, key=lambda each: self.hash(each.name))
        dealt: dict[Ask, list[Certified]] = {ask: [] for ask in asks}
        for lost in (True, False):
            pile = [each for each in shuffled if (each.pivot_step is not None) == lost]
            sizes = [max(bool(n), round(share * n)) for n in (ask.failures if lost else ask.others for ask in asks)]
            bounds = [min(len(pile), sum(sizes)) * bound // max(1, sum(sizes)) for bound in accumulate(sizes)]
            for ask, first, last in zip(asks, [0, *bounds], bounds, strict=False):
                dealt[ask] += pile[first:last]
        return dealt

    def items(
        self, certified: Mapping[str, Sequence[Certified]], share: float, reporter: Reporter
    ) -> Iterator[tuple[Item, Truth]]:
        """Yield the items about held-out episodes with their truths."""
        dealt, stage = self.dealt(certified[VALIDATION], share), f"items, {self.env}"
        reporter.start(stage, sum(map(len, dealt.values())))
        used = {each.level for side in certified.values() for each in side}
        twins: Twins | None = None
        for ask, episodes in dealt.items():
            for each in episodes:
                if ask.question == "twin":
                    twins = twins or Twins(self.env, self._secret, share, self._solver, used)
                    yield from self._pair(ask, each, twins)
                elif (made := self.question(ask, each)) is not None:
                    yield made
                reporter.advance(stage, 1)

    def question(self, ask: Ask, certified: Certified) -> tuple[Item, Truth] | None:
        """Return the item of a question about an episode, and its truth; None where the solver proves no answer."""
        truth = Truth("", certified.level, certified.pivot_step, certified.failure_mode)
        choices, step = tuple(self._profile.failure_modes), None
        if ask.question == "safe":
            choices = tuple(solver_type(plugin_of(self.env)).actions_of(certified.episode.episode["initial_state"]))
            open_steps = [t for t, turn in enumerate(certified.turns) if 0 < len(turn.safe_actions) < len(choices)]
            if not open_steps or any({*turn.safe_actions} - {*choices} for turn in certified.turns):
                return None
            rng = random.Random(derive_seed("safe", self.hash(certified.name)))
            step = open_steps[below(rng, len(open_steps))]
            truth = replace(truth, safe_actions=tuple(certified.turns[step].safe_actions))
        elif ask.question == "credit":
            if not certified.turns:
                return None
            choices = ()
            reached = tuple(turn.within_reach for turn in certified.turns)
            truth = replace(truth, within_reach=reached, need=tuple(turn.need_after for turn in certified.turns))
        item = self._item(certified, ask, certified.episode.collage()["bytes"], choices, step)
        return item, replace(truth, item_id=item.item_id)

    def _pair(self, ask: Ask, certified: Certified, twins: Twins) -> Iterator[tuple[Item, Truth]]:
        """Yield the items of an episode and of its twin; none where it has no twin."""
        twin = twins.of(certified)
        if twin is None:
            return
        pair = self.hash("pair", certified.name)
        row = certified.episode.episode
        mine = row["initial_state"], Truth("", certified.level, certified.pivot_step, certified.failure_mode)
        sides = enumerate((mine, twin))  # the order of the files does not say which is the episode
        for side, (state, truth) in sorted(sides, key=lambda each: self.hash(pair, str(each[0]))):
            pixels, frame = twins.collage(state, row["actions"]), certified.episode.steps[0]["frame_id"]
            picture = certified.episode.frames.image(pixels, frame)["bytes"]  # in the format of the frames
            item = self._item(certified, ask, picture, tuple(self._profile.failure_modes), None, str(side))
            yield item, replace(truth, item_id=item.item_id, pair=pair)

    def _item(
        self, certified: Certified, ask: Ask, picture: bytes, choices: tuple[str, ...], step: int | None, side: str = ""
    ) -> Item:
        """Return an item, and write its picture."""
        row, steps = certified.episode.episode, certified.episode.steps
        shown, pixels = certified.log(ask.log), pixels_digest(decode(picture))
        name = f"{PICTURES}/{pixels}.{container_format(picture).lower()}"
        self._storage.write_bytes(f"{PRIVATE}/{name}", picture)
        return Item(
            item_id=self.hash(ask.question, ask.log, certified.name, side),
            question=ask.question,
            env=self.env,
            log=ask.log,
            horizon=row["horizon"],
            actions=tuple(row["actions"]),
            action_log=shown,
            step=step,
            choices=choices,
            prompt=prompt_text(
                self._profile,
                ask.question,
                ask.log,
                horizon=row["horizon"],
                instruction=row["instruction"],
                action_log=shown,
                inside=tuple(len(each["inside_frame_ids"] or ()) for each in steps),
                step=step,
                choices=choices,
            ),
            pictures=(name,),
            pixels=(pixels,),
        )

    def examples(self, certified: Sequence[Certified]) -> Iterator[Example]:
        """Yield worked examples of every question, every fourth one of an episode that was never lost."""
        piles = {lost: iter([each for each in certified if (each.pivot_step is not None) == lost]) for lost in (1, 0)}
        for place in range(EXAMPLES):
            for ask in self.dealt((), 1):
                each = next(piles[not (ask.others and place % 4 == 1)], None)
                if each is not None and (made := self.question(ask, each)) is not None:
                    yield Example(made[0], true_reply(*made))


# Prompts: pictures, one log, one question, JSON only; no prompt says how the episode ended

TEMPLATE = "3"
"""Version of the texts; a change of it raises the version of the benchmark, too."""

SHAPES: dict[Question, str] = {
    "locate": '{"pivot_step": <integer or null>, "failure_mode": <one word of the list or null>}',
    "safe": '{"safe_actions": [<all of the offered actions that were safe>]}',
    "credit": '{"reach": [<one number from 0 to 1 per step>]}',
}
"""Shape of the reply by question."""


def prompt_text(
    profile: EnvProfile,
    question: Question,
    log: str,
    *,
    horizon: int,
    instruction: str,
    action_log: str,
    inside: tuple[int, ...] = (),
    step: int | None = None,
    choices: tuple[str, ...] = (),
) -> str:
    """Return the text of a question.

    Args:
        profile: description of the environment.
        question: the question; ``twin`` reads like ``locate``.
        log: ``full`` or ``actions``.
        horizon: turns given.
        instruction: goal of the episode; empty if the task says it.
        action_log: compact log, one line per step.
        inside: number of frames inside of each turn; empty for turns of one action.
        step: step of a question ``safe``.
        choices: see :class:`.items.Item`.
    """
    question = "locate" if question == "twin" else question
    steps = len(action_log.splitlines())
    reading = how_to_read(profile, steps, inside).replace("one failed episode", "one episode")
    task, wish = one_line(profile.task_description), one_line(instruction)
    context = [f"- Task description: {task}"]
    if wish and wish != task:
        context.append(f"- Instruction of this episode: {wish}")
    rely = (
        "Rely on the picture as well as on the log."
        if log == "full"
        else "The log names the actions alone; only the picture shows their effects."
    )
    lines = [
        reading,
        "",
        *_asked(profile, question, steps, step, choices),
        f"- {rely}",
        f"- Steps are counted from 0 to {steps - 1}. No text around the object.",
        "",
        "Shape of the answer:",
        SHAPES[question],
        "",
        "Episode:",
        *context,
        f"- Turns given: {horizon}",
        f"- Number of steps: {steps}",
    ]
    return "\n".join(lines) + LOG_HEADING + action_log


def _asked(
    profile: EnvProfile, question: Question, steps: int, step: int | None, choices: tuple[str, ...]
) -> list[str]:
    """Return the question and the first of its constraints."""
    words = domain_of(profile.name, solver_settings(profile.name, SOLVERS.get(profile.name, {})))
    if question == "locate":
        meanings = [f"- {mode}: {words.meaning(mode)}".rstrip(": ") for mode in choices]
        return [
            "Decide whether the agent lost the task in this episode, where, and how. Answer with JSON only: a single "
            "object with these two fields.",
            f"1. pivot_step (integer or null): the index of {words.pivot}; null without such a step, because the "
            "episode succeeded or was never lost.",
            "2. failure_mode (string or null): the kind of failure, one word of the list below; null together with "
            "pivot_step.",
            "",
            "Failure modes:",
            *meanings,
            "",
            "Constraints:",
            f"- failure_mode has to be null or exactly one of: {', '.join(choices)}.",
            f"- Valid range of pivot_step: [0, {steps - 1}]",
        ]
    if question == "safe":
        return [
            f"Look at the moment before step {step}. Name all actions that the agent could have taken at step {step} "
            "so that the goal could still be reached in the turns that were left afterwards: some of the offered ones, "
            "not all. Answer with JSON only: a single object with the field safe_actions.",
            "",
            "Constraints:",
            f"- safe_actions has to be a list of different words of: {', '.join(choices)}.",
        ]
    return [
        "Say for every step how probable it is that the goal could still be reached after it in the turns that were "
        "left, with the best possible actions. Answer with JSON only: a single object with the field reach.",
        "",
        "Constraints:",
        f"- reach has to be a list of exactly {steps} numbers from 0 to 1, one per step, in order.",
    ]
