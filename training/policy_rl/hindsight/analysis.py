"""What is found out about the failures of an update: by the Analyzer or the solver, and told to the Teacher."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....datasets.config import solver_type
from ....datasets.schema import EPISODES, STEPS
from ....datasets.tables import failed_episodes, rollout_tables
from ....labeling.base import FailedEpisode
from ....labeling.vocabulary import Vocabulary, target_mode, target_modes
from ....messages import EncodedFrame
from ....rollouts.base import Status, TaskRollouts
from ....solvers.base import Verdict
from ...analyzer import Analyzer, Reading, case_of_episode, fallback, reading_of
from ...ranks import Ranks
from ..advantages import Groups
from ..config import RlConfig
from ..engines import InProcessBackend, ServedBackend
from ..levels import Levels
from ..scoring import Row
from ..turns import TurnSample, thinking_tokens
from .contexts import Arm, Hindsight, arm_of, hindsight_of, teacher_prompt
from .skills import SkillWriter, write_skills


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed episodes of an update, and what is known about them."""

    episodes: Sequence[FailedEpisode]
    verdicts: Mapping[str, Verdict]
    """The solver's, by episode; one that it cannot answer has none."""
    readings: Mapping[str, Reading]
    """What the arm goes by, by episode; empty where nobody was asked."""
    vocabulary: Vocabulary = "certificate"
    """Whose words for failure modes the readings use."""
    skills: Mapping[str, str] = field(default_factory=dict)
    """What a frozen model wrote about episodes, failed or not; empty in other arms."""

    def figures(self) -> dict[str, float | None]:
        """Return how often the readings agree with the solver, and how many could not be read."""
        both = [(self.readings[name], verdict) for name, verdict in self.verdicts.items() if name in self.readings]

        def mean(values: Sequence[bool]) -> float | None:
            return sum(values) / len(values) if values else None

        return {
            "analyzer_step_accuracy": mean([read.pivot_step == truth.pivot_step for read, truth in both]),
            "analyzer_mode_accuracy": mean([read.failure_mode == self._word(truth) for read, truth in both]),
            "analyzer_unreadable": mean([read.problem is not None for read in self.readings.values()]),
        }

    def _word(self, verdict: Verdict) -> str:
        return target_mode(self.episodes[0].env, verdict.failure_mode, self.vocabulary)


def analyze(
    rollouts: Sequence[TaskRollouts],
    levels: Levels,
    config: RlConfig,
    backend: InProcessBackend | ServedBackend,
    ranks: Ranks,
    frozen: SkillWriter | None = None,
) -> Failures:
    """Find out about all failures of an update, each process about its share of them.

    Args:
        rollouts: of the update.
        levels: of the run.
        config: of the run.
        backend: of the Analyzer.
        ranks: the processes.
        frozen: the larger model of arms that have one.
    """
    tables = rollout_tables(rollouts)
    episodes = failed_episodes(tables[EPISODES], tables[STEPS])
    answers = solver_type(config.env)().certify([episode.case() for episode in episodes])
    named = zip(episodes, answers, strict=True)
    verdicts = {episode.episode_id: answer for episode, answer in named if isinstance(answer, Verdict)}
    arm = arm_of(config.arm)
    if arm.analyzer == "nobody":
        return Failures(episodes, verdicts, {})
    if frozen is not None:
        shown = {key: frame for task in rollouts for key, frame in task.frames.items()}
        finished = [each for task in rollouts for each in task.episodes if each.status is Status.COMPLETE]
        mine = ranks.share(finished)
        skills = write_skills(
            levels.env.profile, mine, shown, frozen, batch=config.generate, max_tokens=config.analyzer_tokens
        )
        return Failures(episodes, verdicts, {}, skills=ranks.join(skills))
    words = config.target_vocabulary
    if arm.analyzer == "solver":
        read = {each.episode_id: _of_verdict(each, verdicts.get(each.episode_id), levels, words) for each in episodes}
        return Failures(episodes, verdicts, read, words)
    frames = {key: frame.image for task in rollouts for key, frame in task.frames.items()}
    cases = [case_of_episode(levels.env.profile, episode, frames, words) for episode in ranks.share(episodes)]
    analyzer = Analyzer(backend)
    replies = backend.connect().answer_all([analyzer.request(case) for case in cases])
    mine = {
        case.episode_id: fallback("unanswered", str(reply), case.num_steps, case.modes)
        if isinstance(reply, Exception)
        else reading_of(reply, case)
        for case, reply in zip(cases, replies, strict=True)
    }
    return Failures(episodes, verdicts, ranks.join(mine), words)


def _of_verdict(episode: FailedEpisode, verdict: Verdict | None, levels: Levels, words: Vocabulary) -> Reading:
    if verdict is None:
        modes = target_modes(levels.env.profile, words)
        return fallback("unanswered", "the solver has no answer", episode.num_steps, modes)
    return Reading(verdict.pivot_step, target_mode(episode.env, verdict.failure_mode, words), "")


@dataclass(frozen=True, slots=True)
class Batch:
    """What an update trains on."""

    turns: Sequence[TurnSample]
    pictures: Mapping[str, EncodedFrame]
    """Every picture that prompts of Student and Teacher show, once."""
    told: Mapping[str, Hindsight]
    """What the Teacher was told about each failure."""

    def figures(self) -> dict[str, int]:
        """Return how many random steps were wanted of episodes that have only one."""
        return {"no_other_step": sum(each.no_other_step for each in self.told.values())}


def make_batch(
    rollouts: Sequence[TaskRollouts], groups: Groups, failures: Failures, levels: Levels, config: RlConfig, decode: Any
) -> Batch:
    """Return a sample of every turn of every complete episode, with the Teacher's prompt where there is a Teacher.

    Args:
        rollouts: of the update.
        groups: advantages of the episodes.
        failures: what was found out.
        levels: of the run.
        config: of the run.
        decode: from the tokens of a reply to its text.
    """
    arm, profile = arm_of(config.arm), levels.env.profile
    pictures: dict[str, EncodedFrame] = {key: each for task in rollouts for key, each in task.frames.items()}
    encoded = {key: each.image for key, each in pictures.items()}
    told: dict[str, Hindsight] = {}
    for episode in failures.episodes if arm.distils else ():
        read = failures.readings.get(episode.episode_id)
        if read is not None:
            known = hindsight_of(arm, profile, episode.episode_id, episode.frame_ids, read, encoded)
            told[episode.episode_id] = known
            if known.panel is not None:
                pictures[known.panel.frame_id] = known.panel
    for name, skill in failures.skills.items():
        if skill.strip():
            told[name] = Hindsight(arm.shows, 0, "", skill, None)
    turns: list[TurnSample] = []
    for task in rollouts:
        for episode in task.episodes:
            if episode.status is not Status.COMPLETE:
                continue
            known, verdict = told.get(episode.episode_id), failures.verdicts.get(episode.episode_id)
            for step in episode.steps:
                student = Row(task.prompts[step.prompt_hash], step.response_token_ids or ())
                if not student.tokens:
                    continue
                teacher = None
                if _is_distilled(arm, config, failed=bool(episode.failed), t=step.t, known=known):
                    teacher = Row(teacher_prompt(student.prompt, levels.prompt, config.env, known), student.tokens)
                turns.append(
                    TurnSample(
                        episode.episode_id,
                        step.t,
                        student,
                        teacher,
                        groups.advantages[episode.episode_id],
                        thinking_tokens(student.tokens, decode),
                        None if verdict is None else verdict.pivot_step == step.t,
                    )
                )
    return Batch(turns, pictures, told)


def _is_distilled(arm: Arm, config: RlConfig, *, failed: bool, t: int, known: Hindsight | None) -> bool:
    """Whether a turn has a Teacher: that of a failure (in arm sdar of any), with scope pivot the one that lost it."""
    if not arm.distils or config.opd == 0 or not (failed or arm.analyzer == "frozen"):
        return False
    return config.opd_scope == "all" or (known is not None and known.step == t)
