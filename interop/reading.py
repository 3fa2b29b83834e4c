"""The first pass over a source: every episode is read, replayed and audited, and what its evidence carries is planned.

A few hundred bytes per episode are kept. What an episode needs depends on its whole source, so the plan is made when
all of them are read.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..core import plugins
from ..core.errors import PivotError
from ..core.identity import canonical_json
from ..core.plugins import read_settings
from ..core.progress import Reporter
from ..datasets.store.config import environment
from ..environments.base import PivotEnv, Task, actions_per_turn
from ..rollouts.confirm import BOARD, PICTURE, STATE, Confirmation, confirm
from ..rollouts.dialect import Dialect
from ..rollouts.policies.imported import Compared, Evidence, LeftOut, StateSource
from .audit import Finding, SourceAudit, finding_of, last_decides_nothing
from .base import Importer, Pictures, Place, UnreadableError
from .chat import ChatSettings
from .distances import bound_by_distance
from .episode import RecordedEpisode
from .levels import LeftOutError, StatelessError, recover_task, slots_of
from .remedy import Remedy, Search, Yield, replies_in
from .replay import Agreement, Pixels, replay
from .settings import check_options, made, settings_of

READ = "read"
EPISODES_AT_ONCE = 1024
"""Episodes of a shard, about: a shard is held in memory."""
_TRIED = 500
"""Episodes of a larger source on which a guess is tried."""
_OF_DIALECT = frozenset({LeftOut.UNCONFIRMED, LeftOut.DISAGREES, LeftOut.ACTION})
_OTHER_LEVELS = 8
"""Number of levels of other seeds that recorded rewards must contradict."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An episode of the source that is not in the store."""

    place: str
    kind: LeftOut
    detail: str
    kept: bool = False
    """Whether the episode counts as kept: its row has a bound, or the store has the episode already."""
    finding: Finding | None = None
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More columns of its row in the table ``imports``."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Facts about an episode that the first pass keeps."""

    place: Place
    env: str
    task: Task
    digest: bytes
    source: StateSource
    agreement: tuple[bool | None, bool | None, bool | None, bool | None]
    finding: Finding
    masked: str = ""
    """Value of the setting ``masked`` for the reading."""


@dataclass(slots=True)
class Entry:
    """An episode that becomes part of the store."""

    taken: Taken
    task: int
    sample: int
    evidence: tuple[Evidence, ...]


@dataclass(slots=True)
class EnvPlan:
    """Levels and episodes of one environment."""

    env: PivotEnv
    tasks: list[Task] = field(default_factory=list[Task])
    entries: list[Entry] = field(default_factory=list[Entry])
    index: dict[Task, int] = field(default_factory=dict[Task, int])
    names: set[tuple[str, int, str]] = field(default_factory=set[tuple[str, int, str]])
    samples: Counter[int] = field(default_factory=Counter[int])
    parts: Counter[Task] = field(default_factory=Counter[Task])
    """Tasks of each level."""

    def add(self, taken: Taken, evidence: tuple[Evidence, ...]) -> None:
        """Add an episode of a level. Every 1,024 episodes of a level get a task of their own, to limit the memory.

        Raises:
            LeftOutError: another level has its name.
        """
        task = taken.task
        number = self.index.get(task)
        if number is None or self.samples[number] >= EPISODES_AT_ONCE:
            parts = self.parts[task]
            named = replace(task, task_id=f"{task.task_id}-part-{parts + 1}") if parts else task
            name = (named.task_id, named.goal_idx, named.eval_set)
            if name in self.names:
                raise LeftOutError(LeftOut.LEVEL, f"task_id {named.task_id!r} names two different levels")
            number = self.index[task] = len(self.tasks)
            self.names.add(name)
            self.tasks.append(named)
            self.parts[task] += 1
        self.entries.append(Entry(taken, number, self.samples[number], evidence))
        self.samples[number] += 1


class Reading:
    """The first pass over a source."""

    def __init__(
        self,
        source: Path,
        format: str,
        settings: Mapping[str, Mapping[str, Any]],
        require: Sequence[Compared],
        options: Mapping[str, Any],
    ) -> None:
        """Read ``source`` in a registered format with its ``options``; ``settings`` replace the recorded ones.

        Raises:
            ConfigError, PluginError: an option or a setting cannot be used in any episode.
        """
        kind: type[Importer] = plugins.load("importers", format)
        self.importer = kind(read_settings(kind.config_type, options, f"option of {format}: "))
        self.source, self.format, self.require = source, format, tuple(require)
        self.options, self.settings = dict(options), settings
        self.pictures = Pictures(source, data_urls=kind.accepts_data_urls)
        self.plans: dict[str, EnvPlan] = {}
        self._stateless: dict[str, EnvPlan] = {}
        """Environments of logs with distances, for a source in which no episode can be replayed."""
        self.problems: list[Problem] = []
        self.audits: dict[str, SourceAudit] = {}
        self.remedies: list[Remedy] = []
        self.repeated = 0
        self._short: dict[str, list[int]] = defaultdict(list)
        """Turns of recorded failures that stop before the default horizon, by environment."""
        self._limit, self._is_trial, self._sample = 0, False, 0
        self._taken: dict[int, Taken | Problem | _Cut] = {}
        self._seen = set[bytes]()
        self._digest = sha256()
        check_options(self.importer.settings, settings)

    def run(self, reporter: Reporter) -> None:
        """Read, replay, compare and audit all episodes, and plan the episodes with enough evidence.

        Raises:
            ConfigError: the source or a setting cannot be used.
        """
        places = list(self.importer.places(self.source))
        self._sample = _TRIED if len(places) > 4 * _TRIED else 0
        if self._limit:
            places = places[:: max(1, -(-len(places) // self._limit))]
        elif getattr(self.importer.settings, "dialect", "") == "auto" and (remedy := self._remedy(places)):
            self.remedies.append(remedy)
            self.options |= remedy.options
            self.importer.settings = self.importer.settings.model_copy(update=dict(remedy.options))
        reporter.start(READ, len(places))
        for number, place in enumerate(places):
            try:
                self._taken[number] = self._take(place)
            except LeftOutError as error:
                self._taken[number] = Problem(place.label, error.kind, str(error), finding=error.finding)
            except UnreadableError as error:
                self._taken[number] = Problem(place.label, LeftOut.UNREADABLE, str(error))
            except MemoryError:
                detail = "its environment needs more memory than there is"
                self._taken[number] = Problem(place.label, LeftOut.SETTINGS, detail)
            reporter.advance(READ, 1)
        reporter.finish(READ)
        for taken in self._taken.values():
            self._plan(taken)
        for plan in self.plans.values():
            plan.env.close()
        if any(each.kind in _OF_DIALECT for each in self.problems) and not self._limit and not self._is_trial:
            remedy = self._remedy(places)
            self.remedies += [] if remedy is None else [remedy]
        self.remedies += [
            Remedy(
                f"{len(turns)} failures of {name} stop after at most {max(turns)} turns, before the default horizon of "
                f"{self.plans[name].env.config.horizon}, and get no label; if that was the budget: "
                f"--set {name}.horizon={max(turns)}"
            )
            for name, turns in self._short.items()
            if name in self.plans
        ]
        doubts = Counter((each.finding.doubt, each.finding.remedy) for each in self.problems if each.finding)
        self.remedies += [
            Remedy(f"{count} episodes: {doubt}: {remedy}") for (doubt, remedy), count in doubts.items() if doubt
        ]

    def _remedy(self, places: Sequence[Place]) -> Remedy | None:
        """Return the dialect that reads the source better than the declared one, or None."""
        settings = self.importer.settings
        if not isinstance(settings, ChatSettings):
            return None
        replies, env, stated = replies_in(self.importer, self.source, places)
        kind = environment(env) if env else None
        if kind is None or not kind.actions:
            return None
        base = settings.model_copy(update={"dialect": "declared"})
        declared = Dialect(**{name: getattr(base, name) for name in Dialect.model_fields})
        before = self._trial({}, 0)
        return Search(replies, kind.actions, kind.profile.answer_tag, declared, self._trial, before, stated).remedy()

    def _trial(self, options: Mapping[str, Any], limit: int) -> Yield:
        """Read the source, or a sample of it, with more options."""
        chosen = {**self.options, "dialect": "declared", **options}
        trial = Reading(self.source, self.format, self.settings, self.require, chosen)
        trial._limit, trial._is_trial, trial.pictures = limit or self._sample, True, self.pictures
        trial.run(Reporter())
        evidence = [entry.evidence for plan in trial.plans.values() for entry in plan.entries]
        proved = sum(not {*each} <= {Evidence.READ, Evidence.SUCCESS, Evidence.DECLARED} for each in evidence)
        return Yield(len(evidence), sum(audit.contradicted for audit in trial.audits.values()), proved)

    def yields(self) -> list[dict[str, Any]]:
        """Return the counts of the yield by environment: the first rows of its table."""
        return [
            {
                "environment": name,
                "read": audit.findings,
                "turns": audit.turns,
                "unread turns": audit.unread,
                "words dropped": audit.dropped,
                "replayed": audit.findings - audit.contradicted,
                "confirmed": audit.confirmed,
                "taken": len(self.plans[name].entries) if name in self.plans else 0,
            }
            for name, audit in sorted(self.audits.items())
        ]

    def _plan(self, taken: "Taken | Problem | _Cut") -> None:
        """Plan an episode, or note why it is left out."""
        if isinstance(taken, Problem):
            self.problems.append(taken)
        elif isinstance(taken, _Cut):
            longest = max(each.turns for each in self._cuts if each.env == taken.env)
            detail = (
                f"the log has {taken.turns} turns, the default horizon of {taken.horizon} would cut it; record the "
                f"horizon, or name it with --set {taken.env}.horizon={longest}"
            )
            self.problems.append(Problem(taken.place.label, LeftOut.SETTINGS, detail))
        else:
            audit, finding = self.audits[taken.env], taken.finding
            try:
                if not (evidence := audit.evidence(finding)):
                    raise LeftOutError(LeftOut.UNCONFIRMED, audit.reason(finding))
                self.plans[taken.env].add(taken, evidence)
                self._digest.update(taken.digest)
            except LeftOutError as error:
                self.problems.append(Problem(taken.place.label, error.kind, str(error), finding=finding))

    @property
    def _cuts(self) -> Iterator["_Cut"]:
        return (each for each in self._taken.values() if isinstance(each, _Cut))

    def _take(self, place: Place) -> "Taken | Problem | _Cut":
        episode = self.importer.episode(self.source, place)
        digest = digest_of(episode)
        whole = sha256(digest + repr([turn.calls for turn in episode.turns]).encode()).digest()[:16]
        if whole in self._seen:
            self.repeated += 1
            return Problem(place.label, LeftOut.REPEATED, "an earlier place has the same episode", kept=True)
        self._seen.add(whole)
        plan = self.plan_of(episode)
        try:
            return self._replayed(plan, place, episode, digest)
        except StatelessError as error:
            return self._without_state(plan, place, episode, str(error))
        finally:
            if episode.env not in self.plans:
                plan.env.close()

    def _without_state(self, plan: EnvPlan, place: Place, episode: RecordedEpisode, why: str) -> Problem:
        """Return the row of an episode that cannot be replayed, with the bound from its distances."""
        bound = None
        if episode.distances is not None:
            replaced = self.settings.get(episode.env, {})
            made = bound_by_distance(episode, slots_of(plan.env, episode), {**episode.env_config, **replaced})
            self._stateless.setdefault(episode.env, plan)
            self._digest.update(digest_of(episode))
            why, bound = (f"{why}; {made}", None) if isinstance(made, str) else (why, made)
        source = {"source_id": episode.id, "source_policy": episode.policy, "recorded_success": episode.success}
        origin = {**source, "env": episode.env, "bound": bound}
        return Problem(place.label, LeftOut.NO_STATE, why, kept=episode.distances is not None, origin=origin)

    @property
    def stored(self) -> Mapping[str, EnvPlan]:
        """Environments of the store; without levels if it has only bounds of logs without a state."""
        return {name: plan for name, plan in self.plans.items() if plan.entries} or self._stateless

    def _replayed(self, plan: EnvPlan, place: Place, episode: RecordedEpisode, digest: bytes) -> "Taken | _Cut":
        """Replay an episode and audit it.

        Raises:
            LeftOutError: it cannot be replayed, or what was recorded contradicts the replay.
        """
        env, masked = plan.env, ""
        attempt = self._attempt(env, episode)
        asks = getattr(self.importer.settings, "masked", None) == "" and 0 < episode.chat.masked < len(episode.turns)
        if asks:
            certain = [each for each in (attempt, *self._skipped(env, place)) if each.is_confirmed]
            if len(certain) == 1:
                attempt, masked = certain[0], "played" if certain[0] is attempt else "skipped"
                digest = digest_of(attempt.episode)
        if attempt.agreement.cut and not self._says_horizon(attempt.episode):
            return _Cut(place, episode.env, len(attempt.episode.turns), env.config.horizon)
        doubt, remedy = self._doubt(env, attempt, asks=asks and not masked)
        finding = finding_of(
            *(attempt.episode, slots_of(env, attempt.episode), attempt.agreement, attempt.confirmation),
            attempt.task,
            asks=getattr(self.importer.settings, "examples", 0) is None,
            doubt=doubt,
            remedy=remedy,
        )
        if finding.last == "mention" and finding.confirmation.open_end:
            decided = last_decides_nothing(env, attempt.task, attempt.episode, attempt.agreement)
            finding = replace(finding, last=None if decided else finding.last)
        if asks and not masked:
            error = LeftOutError(LeftOut.UNCONFIRMED, f"nothing recorded confirms it, and {doubt}: {remedy}")
            error.finding = replace(finding, contradicted=False)
            raise error
        declared = getattr(self.importer.settings, "evidence", "") == "declared"
        self.audits.setdefault(episode.env, SourceAudit(declared)).add(finding)
        agreement = attempt.agreement
        if finding.success is False and not agreement.over and not self._says_horizon(attempt.episode):
            self._short[episode.env].append(finding.turns)
        try:
            agreement.require(self.require)
            if agreement.contradiction:
                raise LeftOutError(LeftOut.DISAGREES, agreement.contradiction)
        except LeftOutError as error:
            error.finding = finding
            raise
        self.plans[episode.env] = plan
        flags = (agreement.end, agreement.states, agreement.rewards, agreement.frames)
        return Taken(place, episode.env, attempt.task, digest, attempt.source, flags, finding, masked)

    def _says_horizon(self, episode: RecordedEpisode) -> bool:
        """Return whether the record or the user names the horizon."""
        return "horizon" in episode.env_config or "horizon" in self.settings.get(episode.env, {})

    def _attempt(self, env: PivotEnv, episode: RecordedEpisode) -> "_Attempt":
        task, source = recover_task(env, episode, self.pictures.frame)
        pixels = Pixels(self.pictures.frame_id, self.pictures.frame)
        agreement = replay(env, task, episode, slots_of(env, episode), pixels)
        confirmation = Confirmation()
        if not agreement.contradiction and agreement.end is not False:
            start = {"state": task.initial_state, "instruction": task.instruction}
            confirmation = confirm(env, start, agreement.moves, agreement.recorded)
        return _Attempt(episode, task, source, agreement, confirmation)

    def _skipped(self, env: PivotEnv, place: Place) -> "Iterator[_Attempt]":
        """Yield the replay without masked replies, if there is one."""
        try:
            yield self._attempt(env, self.read(place, "skipped"))
        except (LeftOutError, UnreadableError):
            return

    def _doubt(self, env: PivotEnv, attempt: "_Attempt", *, asks: bool) -> tuple[str, str]:
        """Return what only a confirmation or an option settles, and the option."""
        episode = attempt.episode
        if asks:
            return (
                f"{episode.chat.masked} of its replies are masked (weight 0 or loss false)",
                "say whether they were played with --option masked=played or --option masked=skipped",
            )
        if (
            len(episode.chat.agents) > 1
            and not attempt.confirmation.whole
            and not getattr(self.importer.settings, "agent", "")
        ):
            names = ", ".join(episode.chat.agents)
            return (
                f"several agents replied ({names})",
                f"name the one that acts with --option agent={episode.chat.agents[0]}",
            )
        limit, most = episode.chat.limit, max(episode.actions_per_turn, actions_per_turn(env.config))
        if limit not in (0, most) and getattr(self.importer.settings, "evidence", "") != "declared":
            return (
                f"its prompt allows {limit} actions a turn, but turns of {most} are read",
                f"say how many a turn could hold, as in --option separator=any --option actions_per_turn={limit}",
            )
        if attempt.source is StateSource.SEED and not self._is_own_level(env, attempt):
            return (
                f"its level is made from the seed {episode.seed}, which may be that of another generator",
                "record initial_state, or say that PIVOT's generator made it with --option generator=pivot",
            )
        return "", ""

    def _is_own_level(self, env: PivotEnv, attempt: "_Attempt") -> bool:
        """Return whether the level of a seed is the recorded one."""
        episode, agreement = attempt.episode, attempt.agreement
        said = episode.recorder or getattr(self.importer.settings, "generator", "")
        shown = {kind for kinds in agreement.recorded for kind in kinds} & {PICTURE, BOARD, STATE}
        if said == "pivot" or shown or episode.initial_state is not None:
            return True
        if agreement.contradiction or not (agreement.rewards or (episode.success and agreement.success)):
            return False
        for seed in range(1, _OTHER_LEVELS + 1):
            try:
                other = type(env).make_task(env.config, (episode.seed or 0) + seed)
                task = replace(attempt.task, initial_state=other.initial_state)
                again = replay(
                    env, task, episode, slots_of(env, episode), Pixels(self.pictures.frame_id, self.pictures.frame)
                )
            except (LeftOutError, PivotError):
                continue
            if again.rewards is not False and again.end is not False:
                return False
        return True

    def read(self, place: Place, masked: str = "") -> RecordedEpisode:
        """Read an episode, under a setting of masked replies of its own.

        Raises:
            UnreadableError, LeftOutError: see :meth:`Importer.episode`.
        """
        importer = self.importer
        if masked:
            importer = copy(importer)
            importer.settings = importer.settings.model_copy(update={"masked": masked})
        return importer.episode(self.source, place)

    def plan_of(self, episode: RecordedEpisode) -> EnvPlan:
        """Return the plan of the environment of an episode; the first that can be replayed decides its settings.

        Raises:
            LeftOutError: the environment is unknown, or the episode has other settings.
        """
        kind, config = settings_of(episode, self.settings.get(episode.env, {}))
        plan = self.plans.get(episode.env)
        if plan is None:
            plan = EnvPlan(made(kind, config))
        elif plan.env.config.decisive() != config.decisive():
            stored, other = vars(plan.env.config), vars(config)
            name = next(name for name in other if name not in config.locations and other[name] != stored[name])
            raise LeftOutError(
                LeftOut.SETTINGS,
                f"{episode.env}.{name} is {other[name]!r}, the store has {stored[name]!r}; import such episodes "
                "into a store of their own, or name the setting with --set",
            )
        return plan

    @property
    def digest(self) -> str:
        """Digest of the episodes that were taken, in order."""
        return self._digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _Cut:
    """An episode that is longer than the default horizon."""

    place: Place
    env: str
    turns: int
    horizon: int


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to read an episode, replayed."""

    episode: RecordedEpisode
    task: Task
    source: StateSource
    agreement: Agreement
    confirmation: Confirmation

    @property
    def is_confirmed(self) -> bool:
        """Whether the recording confirms all of it."""
        agreement = self.agreement
        return self.confirmation.whole and not agreement.contradiction and agreement.end is not False


def digest_of(episode: RecordedEpisode) -> bytes:
    """Return a digest of an episode after reading it."""
    return sha256(episode.model_dump_json().encode() + canonical_json(episode.turns[-1].prompt).encode()).digest()[:16]
