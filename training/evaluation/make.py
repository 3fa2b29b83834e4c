"""Makes the benchmark from seeds: levels from the seed, rollouts from scripted players, truths from the solvers.

Nothing is downloaded, so everyone makes the same benchmark. Half of the levels is held out for its items; the other
half is for worked examples and for fitting the baselines.
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.errors import TrainingError
from ...core.images import container_format, decode
from ...core.progress import Reporter
from ...core.storage import open_storage
from ...datasets.store.config import environment, solver_type
from ...datasets.store.dataset_rows import TRAIN, VALIDATION
from ...datasets.store.store import Store
from ...environments.base import EnvProfile
from ...labeling.analyzer import LOG_HEADING, how_to_read, one_line
from ...labeling.domains import domain_of
from .baselines import SILENT, measure_baselines
from .controls import true_reply
from .episodes import (
    PLAYERS,
    Certified,
    check_ready,
    read_episodes,
    simulator_versions,
    store_configs,
    store_of,
)
from .items import (
    EXAMPLES,
    LOGS,
    PICTURES,
    SEED,
    VERSION,
    Benchmark,
    Example,
    Item,
    Question,
    Truth,
    pixels_digest,
    plugin_of,
    write_benchmark,
)

LEVELS: Mapping[str, int] = {
    **{"sokoban": 280, "frozenlake": 280, "navigation": 460, "primitiveskill": 260, "svg": 260},
    **{"gym:MiniGrid-LavaCrossingS9N2-v0": 340, "gym:Taxi-v4": 400},
}
"""Number of levels per environment, with eight rollouts each: failures of every kind of player to choose from."""

OTHER_LEVELS = 340
"""Number of levels of any other gymnasium environment."""

FAILURES, OTHERS, ASIDE = 500, 125, 250
"""Items per environment: failures and other episodes of ``locate``; failures of ``safe`` and episodes of ``credit``."""

Build = Callable[[Mapping[str, Any], Path], Any]
"""Builds a store from a config, or resumes its build."""


def make_benchmark(
    root: Path,
    build: Build,
    *,
    levels: Mapping[str, int] = LEVELS,
    seed: int = SEED,
    share: float = 1.0,
    private: bool = False,
    learned: bool = True,
    reporter: Reporter = SILENT,
) -> Benchmark:
    """Build the store of a benchmark, or resume its build, and write the benchmark.

    Args:
        root: folder of the benchmark.
        build: builds or resumes a store.
        levels: number of levels per environment of the whole benchmark.
        seed: seed of levels and rollouts.
        share: share of the levels and items that is made.
        private: whether ``benchmark.json`` leaves the seed out.
        learned: whether the boosted trees are among the baselines.
        reporter: receives the progress, in episodes.

    Raises:
        PivotError: an environment cannot be made, a store cannot be built, or the folder cannot be written.
        TrainingError: the stores hold too few failures.
    """
    counts = {env: max(8, round(share * count)) for env, count in levels.items()}
    check_ready(counts)
    for name, config in store_configs(counts, seed).items():
        build(config, root / name)
    items: list[Item] = []
    truths: list[Truth] = []
    examples: list[Example] = []
    fitting: dict[str, list[Certified]] = {}
    for env in counts:
        certified = read_episodes(Store.open(root / store_of(env)), env)
        fitting[env] = certified[TRAIN]
        maker = _ItemMaker(root, env)
        made, more = _questions(maker, selected(certified[VALIDATION], share), share, reporter)
        items += made
        truths += more
        examples += _examples(maker, certified[TRAIN])
    if share == 1:
        _check_failures(root, counts, items, truths)
    facts = {
        "version": VERSION,
        "seed": None if private else seed,
        "share": share,
        "levels": counts,
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
    )


def _check_failures(root: Path, envs: Iterable[str], items: Sequence[Item], truths: Sequence[Truth]) -> None:
    """Refuse a whole benchmark with too few failures of a kind of player."""
    failures = Counter(
        (item.env, item.player)
        for item, truth in zip(items, truths, strict=True)
        if item.question == "locate" and item.log == LOGS[0] and truth.pivot_step is not None
    )
    for env, player in itertools.product(envs, PLAYERS):
        least = quota(FAILURES, player, 1)
        if failures[env, player] < least:
            raise TrainingError(
                f"{root}: found {failures[env, player]} held-out failures of {env} by the player {player}, expected "
                f"{least}; choose another --seed"
            )


def check_made(benchmark: Benchmark, levels: Mapping[str, int], seed: int, share: float) -> Benchmark:
    """Return a benchmark that was made earlier, if it has the requested settings.

    Raises:
        TrainingError: its environments, seed or share differ.
    """
    facts = benchmark.facts
    counts = {env: max(8, round(share * count)) for env, count in levels.items()}
    same_seed = facts["seed"] in (None, seed)
    if facts["levels"] != counts or facts["share"] != share or not same_seed:
        raise TrainingError(
            f"{benchmark.root} holds a benchmark of {facts['levels']} with seed {facts['seed']} and share "
            f"{facts['share']}, expected {counts}, {seed} and {share}; choose another folder, or use it as it is"
        )
    return benchmark


def _hash(certified: Certified) -> str:
    return hashlib.sha256(certified.name.encode()).hexdigest()


def selected(certified: Sequence[Certified], share: float) -> list[Certified]:
    """Return the items' episodes: failures and others of each kind of player, by the hash of their ids."""
    chosen: list[Certified] = []
    for player in PLAYERS:
        mine = sorted((each for each in certified if each.player == player), key=_hash)
        chosen += [each for each in mine if each.pivot_step is not None][: quota(FAILURES, player, share)]
        chosen += [each for each in mine if each.pivot_step is None][: quota(OTHERS, player, share)]
    return chosen


def quota(count: int, player: str, share: float) -> int:
    """Return the number of episodes of a kind of player among ``count`` of the whole benchmark."""
    return max(1, round(share * PLAYERS[player].share * count))


class _ItemMaker:
    """Makes items of one environment and writes their pictures."""

    def __init__(self, root: Path, env: str) -> None:
        self.env = env
        self._storage = open_storage(root)
        self._written: dict[str, tuple[str, str]] = {}
        """Name of the collage and digest of its pixels, by episode."""

    def item(
        self,
        certified: Certified,
        question: Question,
        log: str,
        *,
        choices: tuple[str, ...] = (),
        step: int | None = None,
    ) -> Item:
        """Return an item."""
        row, steps = certified.episode.episode, certified.episode.steps
        shown = certified.log(log)
        picture, pixels = self._collage(certified)
        return Item(
            item_id=f"{question}/{log}/{self.env}/{certified.name}",
            question=question,
            env=self.env,
            player=certified.player,
            log=log,
            horizon=row["horizon"],
            actions=tuple(row["actions"]),
            action_log=shown,
            step=step,
            choices=choices,
            prompt=prompt_text(
                self.profile,
                question,
                log,
                horizon=row["horizon"],
                instruction=row["instruction"],
                action_log=shown,
                inside=tuple(len(each["inside_frame_ids"] or ()) for each in steps),
                step=step,
                choices=choices,
            ),
            pictures=(picture,),
            pixels=(pixels,),
        )

    @property
    def profile(self) -> EnvProfile:
        """Description of the environment."""
        return environment(plugin_of(self.env)).profile

    def _collage(self, certified: Certified) -> tuple[str, str]:
        """Write the collage of an episode once; return its name and the digest of its pixels."""
        if certified.name not in self._written:
            data = certified.episode.collage()["bytes"]
            pixels = pixels_digest(decode(data))
            name = f"{PICTURES}/{pixels}.{container_format(data).lower()}"
            self._storage.write_bytes(name, data)
            self._written[certified.name] = name, pixels
        return self._written[certified.name]

    def questions(self, certified: Certified, aside: bool) -> list[tuple[Item, Truth]]:
        """Return all items about an episode with their truths; ``aside`` adds the questions beside ``locate``."""
        modes = tuple(self.profile.failure_modes)
        truth = Truth("", certified.level, certified.pivot_step, certified.failure_mode)
        made = [(self.item(certified, "locate", log, choices=modes), truth) for log in LOGS]
        if aside and (question := self._safe(certified)) is not None:
            step, offered, safe = question
            item = self.item(certified, "safe", LOGS[1], choices=offered, step=step)
            made.append((item, replace(truth, safe_actions=safe)))
        if aside and certified.turns:
            reached = tuple(turn.within_reach for turn in certified.turns)
            needs = tuple(turn.need_after for turn in certified.turns)
            made.append((self.item(certified, "credit", LOGS[1]), replace(truth, within_reach=reached, need=needs)))
        return [(item, replace(each, item_id=item.item_id)) for item, each in made]

    def _safe(self, certified: Certified) -> tuple[int, tuple[str, ...], tuple[str, ...]] | None:
        """Return step, offered and safe actions of a question ``safe``; None where no action is certainly safe."""
        if certified.pivot_step is None or not certified.turns:
            return None
        safe = certified.turns[certified.pivot_step].safe_actions
        offered = tuple(solver_type(plugin_of(self.env)).actions_of(certified.episode.episode["initial_state"]))
        taken = certified.episode.episode["actions"][certified.pivot_step]
        if not safe or set(offered) <= set(safe) or not set(safe) <= set(offered) or taken in safe:
            return None
        return certified.pivot_step, offered, tuple(safe)


def _questions(
    maker: _ItemMaker, chosen: Sequence[Certified], share: float, reporter: Reporter
) -> tuple[list[Item], list[Truth]]:
    stage = f"items, {maker.env}"
    reporter.start(stage, len(chosen))
    aside = set(map(_hash, sorted(chosen, key=_hash)[: max(1, round(share * ASIDE))]))
    items: list[Item] = []
    truths: list[Truth] = []
    for certified in sorted(chosen, key=_hash):
        for item, truth in maker.questions(certified, _hash(certified) in aside):
            items.append(item)
            truths.append(truth)
        reporter.advance(stage, 1)
    return items, truths


def _examples(maker: _ItemMaker, certified: Sequence[Certified]) -> list[Example]:
    """Return worked examples of different levels, every fourth one of an episode that was never lost."""
    failures = [each for each in certified if each.pivot_step is not None]
    others = [each for each in certified if each.pivot_step is None]
    examples: dict[tuple[str, str], list[Example]] = {}
    levels: set[str] = set()
    for place in range(len(certified)):
        source = others if place % 4 == 1 and others else failures
        each = next((one for one in source if one.level not in levels), None)
        if each is None or len(levels) >= EXAMPLES:
            break
        levels.add(each.level)
        for item, truth in maker.questions(each, aside=True):
            examples.setdefault((item.question, item.log), []).append(Example(item, true_reply(item, truth)))
    return [example for group in examples.values() for example in group]


# Prompts: pictures, one log, one question, JSON only; no prompt says how the episode ended

TEMPLATE = "2"
"""Version of the texts; a change of it raises the version of the benchmark, too."""

SHAPES: dict[Question, str] = {
    "locate": '{"pivot_step": <integer or null>, "failure_mode": <one word of the list or null>}',
    "safe": '{"safe_action": <one of the offered actions>}',
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
        question: the question.
        log: ``full`` or ``actions``.
        horizon: turns given.
        instruction: goal of the episode; empty if the task says it.
        action_log: compact log, one line per step.
        inside: number of frames inside of each turn; empty for turns of one action.
        step: step of a question ``safe``.
        choices: see :class:`.items.Item`.
    """
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
    words = domain_of(profile.name)
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
            f"Look at the moment before step {step}. Name one action that the agent could have taken at step {step} so "
            "that the goal could still be reached in the turns that were left afterwards. Answer with JSON only: a "
            "single object with the field safe_action.",
            "",
            "Constraints:",
            f"- safe_action has to be exactly one of: {', '.join(choices)}.",
        ]
    return [
        "Say for every step how probable it is that the goal could still be reached after it in the turns that were "
        "left, with the best possible actions. Answer with JSON only: a single object with the field reach.",
        "",
        "Constraints:",
        f"- reach has to be a list of exactly {steps} numbers from 0 to 1, one per step, in order.",
    ]
