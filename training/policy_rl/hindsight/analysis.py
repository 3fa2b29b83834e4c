"""The analysis of the failures of an update, by the Analyzer or the solver, and the training samples made from it."""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....core.errors import TrainingError
from ....core.identity import derive_seed, digest
from ....core.messages import EncodedFrame, in_think_tags
from ....datasets.store.config import solver_type
from ....environments.base import EnvProfile
from ....labeling.action_log import log_decimals
from ....labeling.base import FailedEpisode, Objection
from ....labeling.domains import domain_of
from ....labeling.episode import EPISODE_COLUMNS, STEP_COLUMNS
from ....labeling.filters import UNKNOWN_SENTENCE, is_rendered, text_objection
from ....labeling.hindsight import Hindsight, teacher_prompt
from ....labeling.target import Vocabulary, target_mode, target_modes
from ....models.base import Backend, ChatRequest, Sampling
from ....models.transformers.model import Engine
from ....rollouts.base import Episode, Status, TaskRollouts, request_id
from ....solvers.base import Verdict
from ...analyzer import Analyzer, Reading, case_of_episode, fallback, reading_of
from ...encode import CLOSED, Encoder
from ...ranks import Ranks
from ..advantages import Groups
from ..config import RlConfig
from ..engines.base import answer_all
from ..levels import Levels
from ..scoring import Row, TurnSample
from .contexts import arm_of, hindsight_of


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed episodes of an update with their analysis."""

    episodes: Sequence[FailedEpisode]
    verdicts: Mapping[str, Verdict]
    """Answers of the solver, by episode; an episode without an answer is left out."""
    readings: Mapping[str, Reading]
    """Pivot step, mode and guidance that the arm uses, by episode; empty in arms without an Analyzer."""
    vocabulary: Vocabulary = "certificate"
    """Label names of failure modes in ``readings``."""
    objections: Mapping[str, Objection | None] = field(default_factory=dict)
    """Objections to the guidance of the readings; None where every sentence is a fact. Empty guidance has no entry."""
    skills: Mapping[str, str] = field(default_factory=dict)
    """Skills that a frozen model wrote about episodes, failed or not; empty in other arms."""

    def figures(self) -> dict[str, float | None]:
        """Return how often the readings agree with the solver, and the share that could not be read.

        Of the guidance: the share that is not made of rendered sentences, and the share of the rest that is true.
        """
        rendered = [each for each in self.objections.values() if each is None or each.kind != UNKNOWN_SENTENCE]
        envs = {episode.episode_id: episode.env for episode in self.episodes}
        both = [
            (self.readings[name], verdict, target_mode(envs[name], verdict.failure_mode, self.vocabulary))
            for name, verdict in self.verdicts.items()
            if name in self.readings
        ]

        def mean(values: Sequence[bool]) -> float | None:
            return sum(values) / len(values) if values else None

        return {
            "analyzer_step_accuracy": mean([read.pivot_step == truth.pivot_step for read, truth, _ in both]),
            "analyzer_mode_accuracy": mean([read.failure_mode == mode for read, _, mode in both]),
            "analyzer_unreadable": mean([read.problem is not None for read in self.readings.values()]),
            "analyzer_guidance_prose": 1 - len(rendered) / len(self.objections) if self.objections else None,
            "analyzer_guidance_true": mean([each is None for each in rendered]),
        }


def failed_episode(episode: Episode) -> FailedEpisode:
    """Return a failed, complete episode, which has at least one step, as the labeller sees it."""
    fields = {name: getattr(episode, name) for name in (*EPISODE_COLUMNS, "actions", "rewards")}
    cells = {name: [getattr(step, name) for step in episode.steps] for name in STEP_COLUMNS}
    return FailedEpisode.of({**fields, "env_config": json.loads(episode.env_config)}, cells)


def analyze(
    rollouts: Sequence[TaskRollouts],
    levels: Levels,
    config: RlConfig,
    backend: Backend,
    ranks: Ranks,
    frozen: Engine | None = None,
) -> Failures:
    """Analyze all failures of an update; each process asks the model about its share of them.

    ``backend`` is the model as the Analyzer, ``frozen`` the larger model of the arms that have one.
    """
    profile = levels.env.profile
    finished = [each for task in rollouts for each in task.episodes if each.status is Status.COMPLETE]
    episodes = [failed_episode(each) for each in finished if each.failed]
    solver, failed = solver_type(config.env)(), [episode.case() for episode in episodes]
    answers = solver.certify(failed)
    certified = zip(episodes, answers, strict=True)
    verdicts = {episode.episode_id: answer for episode, answer in certified if isinstance(answer, Verdict)}
    arm, vocabulary = arm_of(config.arm), config.target_vocabulary
    if arm.analyzer == "nobody":
        return Failures(episodes, verdicts, {})
    if frozen is not None:
        frames = {key: frame for task in rollouts for key, frame in task.frames.items()}
        mine, limit = ranks.share(finished), config.analyzer_tokens
        sampling = Sampling(SKILL_TEMPERATURE, max_tokens=limit, chat_template_kwargs=config.chat_template_kwargs)
        skills = write_skills(profile, mine, frames, frozen, batch=config.generate, sampling=sampling)
        return Failures(episodes, verdicts, {}, skills=ranks.join(skills))
    if arm.analyzer == "solver":
        readings = {
            each.episode_id: _reading_of_verdict(each, verdicts.get(each.episode_id), levels, vocabulary)
            for each in episodes
        }
        return Failures(episodes, verdicts, readings, vocabulary)
    images = {key: frame.image for task in rollouts for key, frame in task.frames.items()}
    shown = ranks.share(list(zip(episodes, log_decimals(solver, failed, answers), strict=True)))
    cases = [case_of_episode(profile, episode, images, vocabulary, decimals) for episode, decimals in shown]
    analyzer = Analyzer(backend)
    replies = answer_all(backend.connect(), [analyzer.request(case) for case in cases])
    readings = {
        case.episode_id: fallback("unanswered", str(reply), case.num_steps, case.modes)
        if isinstance(reply, Exception)
        else reading_of(reply, case)
        for case, reply in zip(cases, replies, strict=True)
    }
    readings = ranks.join(readings)
    objections = {
        each.episode_id: text_objection(guidance, each, verdicts[each.episode_id])
        for each in episodes
        if each.episode_id in verdicts and (guidance := readings[each.episode_id].failure_reason).strip()
    }
    return Failures(episodes, verdicts, readings, vocabulary, objections)


def _reading_of_verdict(
    episode: FailedEpisode, verdict: Verdict | None, levels: Levels, vocabulary: Vocabulary
) -> Reading:
    if verdict is None:
        modes = target_modes(levels.env.profile, vocabulary)
        return fallback("unanswered", "the solver has no answer", episode.num_steps, modes)
    return Reading(verdict.pivot_step, target_mode(episode.env, verdict.failure_mode, vocabulary), "")


@dataclass(frozen=True, slots=True)
class UpdateSamples:
    """The training samples of an update."""

    turns: Sequence[TurnSample]
    pictures: Mapping[str, EncodedFrame]
    """Every picture in prompts of Student and Teacher, by frame id."""
    hindsight: Mapping[str, Hindsight]
    """Hindsight in the Teacher's prompts, by episode."""


def make_samples(
    rollouts: Sequence[TaskRollouts],
    groups: Groups,
    failures: Failures,
    levels: Levels,
    config: RlConfig,
    decode: Callable[[Sequence[int]], str],
    estimates: Mapping[str, Sequence[float]] | None = None,
) -> UpdateSamples:
    """Return a sample of every turn of every complete episode, with the Teacher's prompt where a Teacher scores it.

    ``decode`` converts the tokens of a reply to text. ``estimates`` are the advantages of the turns by episode, by
    default that of the episode.
    """
    arm = arm_of(config.arm)
    pictures = {key: each for task in rollouts for key, each in task.frames.items()}
    hindsight = _contexts(failures, levels, config, pictures)
    pictures |= {each.panel.frame_id: each.panel for each in hindsight.values() if each.panel is not None}
    turns: list[TurnSample] = []
    for task in rollouts:
        for episode in task.episodes:
            if episode.status is not Status.COMPLETE:
                continue
            context, verdict = hindsight.get(episode.episode_id), failures.verdicts.get(episode.episode_id)
            # Of failures alone; arm sdar: of all episodes.
            is_distilled = arm.distils and config.opd != 0 and bool(episode.failed or arm.analyzer == "frozen")
            for step in episode.steps:
                student = Row(task.prompts[step.prompt_hash], step.response_token_ids or ())
                if not student.tokens:
                    continue
                teacher = None
                chosen = config.opd_scope == "all" or (context is not None and context.step == step.t)
                if is_distilled and chosen:
                    prompt = teacher_prompt(student.prompt, levels.prompt, config.env, context)
                    teacher = Row(prompt, student.tokens)
                turns.append(
                    TurnSample(
                        episode.episode_id,
                        step.t,
                        student,
                        teacher,
                        groups.of_turn(episode.episode_id, step.t)
                        if estimates is None or config.advantages == "grpo"
                        else estimates[episode.episode_id][step.t],
                        thinking_tokens(student.tokens, decode),
                        None if verdict is None else verdict.pivot_step == step.t,
                    )
                )
    return UpdateSamples(turns, pictures, hindsight)


def _contexts(
    failures: Failures, levels: Levels, config: RlConfig, pictures: Mapping[str, EncodedFrame]
) -> dict[str, Hindsight]:
    """Return the hindsight in the Teacher's prompts by episode; ``pictures`` are the frames of the rollouts."""
    arm, profile = arm_of(config.arm), levels.env.profile
    images = {key: each.image for key, each in pictures.items()}
    hindsight: dict[str, Hindsight] = {}
    for episode in failures.episodes if arm.distils else ():
        name, reading = episode.episode_id, failures.readings.get(episode.episode_id)
        if reading is None:
            continue
        if config.guidance == "facts" and not is_rendered(episode.env, reading.failure_reason):
            reading = replace(reading, failure_reason="")
        context = hindsight_of(arm, profile, name, episode.frame_ids, reading, images)
        hindsight[name] = replace(context, domain=domain_of(episode.env, None, episode.env_config))
    skills = {name: skill for name, skill in failures.skills.items() if skill.strip()}
    return hindsight | {name: Hindsight(arm.shows, 0, "", skill, None) for name, skill in skills.items()}


def thinking_tokens(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int:
    """Return the number of tokens of a reply up to the end of the thoughts; 0 where they are never closed."""

    def closed(count: int) -> bool:
        return CLOSED in in_think_tags(decode(tokens[:count]))

    return bisect_left(range(len(tokens)), True, lo=1, key=closed) if closed(len(tokens)) else 0


# Skills of the arm ``sdar``: a frozen larger model sees all frames of an episode and writes advice in its own words. It
# names no pivot, and successes have one, too. The same model is the Teacher that reads it.

SKILL_TEMPERATURE = 0.0

_ASK = (
    "Write the skill that someone would need to do well in a situation like this one: what to look for, what to do and "
    "what to leave. Two or three sentences, no list, nothing about this text."
)


def skill_messages(profile: EnvProfile, episode: Episode) -> list[dict[str, Any]]:
    """Return the prompt: the task, each frame as a picture of its own with the action after it, and the question."""
    content: list[dict[str, Any]] = [
        {"type": "text", "text": f"{profile.task_description}\n{episode.instruction}\nAn attempt, step by step:"}
    ]
    for step in episode.steps:
        content.append({"type": "image", "frame_id": step.frame_id})
        content.append({"type": "text", "text": f"step {step.t}: {step.action}"})
    ending = "It succeeded." if episode.success else "It did not succeed."
    content.append({"type": "image", "frame_id": episode.steps[-1].next_frame_id})
    content.append({"type": "text", "text": f"{ending}\n{_ASK}"})
    return [{"role": "user", "content": content}]


def write_skills(
    profile: EnvProfile,
    episodes: Sequence[Episode],
    frames: Mapping[str, EncodedFrame],
    engine: Engine,
    *,
    batch: int,
    sampling: Sampling,
) -> dict[str, str]:
    """Return the skill of each episode by its id; empty if the request failed."""
    requests = []
    for episode in episodes:
        messages = skill_messages(profile, episode)
        name = episode.episode_id
        requests.append(
            ChatRequest(
                request_id=request_id(name, episode.num_steps - 1, "teacher"),
                episode_id=name,
                t=None,
                role="teacher",
                messages=messages,
                images=frames,
                prompt_hash=digest(messages),
                sampling=sampling,
                seed=derive_seed(name, "skill"),
            )
        )
    answers = [
        answer for first in range(0, len(requests), batch) for answer in engine.answer(requests[first : first + batch])
    ]
    return {
        episode.episode_id: "" if isinstance(answer, Exception) else answer.text
        for episode, answer in zip(episodes, answers, strict=True)
    }


def check_same_tokens(student: Encoder, teacher: Encoder) -> None:
    """Check that Student and Teacher have the same vocabulary of tokens.

    Raises:
        TrainingError: a token has another number, or none, in the Teacher's vocabulary.
    """
    mine, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    different = next((token for token, number in mine.items() if theirs.get(token) != number), None)
    if different is not None:
        raise TrainingError(
            f"the Teacher's tokenizer has no token {different!r} with the Student's number, expected one vocabulary; "
            "choose a Teacher of the Student's family with --teacher-model"
        )
