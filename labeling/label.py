"""Label failed episodes: verdicts in one batch, then guidance, target, prompt and the judgement of every filter.

A pure function of the stored rows, the solver, the teacher and the filters: labelling again needs no new rollouts, and
equal inputs give equal labels in the order of the episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..core import plugins
from ..core.errors import StoreError
from ..core.identity import canonical_json
from ..core.messages import PromptMessages
from ..core.plugins import Settings
from ..environments.base import EnvProfile
from ..solvers.base import Proof, Prover, Solver, Unsolved, Verdict
from .action_log import LogDetail, log_decimals
from .analyzer import analyzer_prompt, shown_frames
from .base import (
    EMPTY,
    Draft,
    FailedEpisode,
    Filter,
    Guidance,
    GuidanceRequest,
    GuidanceSource,
    GuidanceWriter,
    Label,
    RejectReason,
)
from .domains import Failure, domain_of
from .replay import Replays
from .statements import Offer
from .target import Vocabulary, build_target, profile_under, target_mode

PROVER = "prover"
"""Name of the reason against a label that an independent prover refuted."""

EVIDENCE = "evidence"
"""Name of the reason against a label of an imported episode that nothing confirms."""

TEACHER = "teacher"
"""Name of the reason against a label whose teacher gave no usable guidance."""


def label_episodes(
    episodes: Sequence[FailedEpisode],
    solver: Solver,
    teacher: GuidanceWriter | None,
    filters: Sequence[Filter],
    label_version: str,
    vocabulary: Vocabulary = "certificate",
    frames: Mapping[str, bytes] | None = None,
    prover: Prover | None = None,
    log: LogDetail = "full",
    source: GuidanceSource = "facts",
) -> list[Label]:
    """Return one label per episode, in order.

    Args:
        episodes: failed episodes of the solver's environment.
        solver: pins pivot and mode.
        teacher: writes the guidance; None leaves it empty.
        filters: all of them judge every label with a verdict; one without carries the solver's reason alone.
        label_version: stored with every label.
        vocabulary: whose words for failure modes targets and prompts use; the labels keep the solver's.
        frames: encoded pictures by frame id, for a teacher that needs them.
        prover: proves every label a second time; one that it refutes is rejected, without it all are unproved.
        log: what the Analyzer's log shows of each step.
        source: what enters targets: sentences rendered from checked facts, or the teacher's free text.

    Raises:
        StoreError: the rows of an episode do not belong together.
        PluginError: an environment is not installed.
        PolicyError: the teacher could not answer at all.
    """
    certified = certify_episodes(episodes, solver, vocabulary, log)
    guidance: dict[int, Guidance] = {}
    if teacher is not None:
        requests = guidance_requests(certified, vocabulary, frames or {})
        guidance = write_guidance(teacher, requests)
    return make_labels(certified, guidance, solver, teacher, filters, label_version, vocabulary, prover, source)


@dataclass(frozen=True, slots=True)
class Certified:
    """A failed episode, what its solver says, and what the Analyzer is shown of it."""

    episode: FailedEpisode
    profile: EnvProfile
    answer: Verdict | Unsolved
    prompt: PromptMessages
    decimals: int
    """Number of decimals of the measurements in its log."""
    offer: Offer | None
    """The checked statements about the failure; None without a verdict."""
    settings: Settings | None
    """Settings of the solver; None without typed ones."""


def certify_episodes(
    episodes: Sequence[FailedEpisode], solver: Solver, vocabulary: Vocabulary = "certificate", log: LogDetail = "full"
) -> list[Certified]:
    """Pin pivot and mode of every episode, in order; arguments and errors are those of :func:`label_episodes`."""
    for episode in episodes:
        _check_rows(episode)
    cases = [episode.case() for episode in episodes]
    answers = solver.certify(cases)
    certified: list[Certified] = []
    settings: Settings | None = getattr(solver, "settings", None)  # a solver may have a config of its own instead
    for episode, answer, decimals in zip(episodes, answers, log_decimals(solver, cases, answers), strict=True):
        profile = profile_under(plugins.load("environments", episode.env).profile, episode.env_config)
        prompt = analyzer_prompt(profile, episode, vocabulary, log, decimals, settings)
        offer = None
        if isinstance(answer, Verdict):
            offer = domain_of(episode.env, settings).offer(Failure(profile, episode, answer, decimals))
        certified.append(Certified(episode, profile, answer, prompt, decimals, offer, settings))
    return certified


def guidance_requests(
    certified: Sequence[Certified], vocabulary: Vocabulary, frames: Mapping[str, bytes]
) -> dict[int, GuidanceRequest]:
    """Return the requests to a teacher by the index of the episode; one without a verdict gets no guidance."""
    return {
        index: GuidanceRequest(
            *(each.profile, each.episode, each.answer, each.prompt, each.offer),
            *(vocabulary, frames, each.decimals, each.settings),
        )
        for index, each in enumerate(certified)
        if isinstance(each.answer, Verdict) and each.offer is not None
    }


def guidance_request(
    profile: EnvProfile, episode: FailedEpisode, verdict: Verdict, frames: Mapping[str, bytes] | None = None
) -> GuidanceRequest:
    """Return the request to a teacher about one label, for tests and pre-flight checks."""
    prompt, offer = analyzer_prompt(profile, episode), domain_of(episode.env).offer(Failure(profile, episode, verdict))
    return GuidanceRequest(profile, episode, verdict, prompt, offer, frames=frames or {})


def write_guidance(teacher: GuidanceWriter, requests: Mapping[int, GuidanceRequest]) -> dict[int, Guidance]:
    """Ask the teacher all at once; return its guidance, each with what it was shown.

    Raises:
        PolicyError: the teacher could not answer at all.
    """
    written = zip(requests.items(), teacher.write(list(requests.values())) if requests else [], strict=True)
    return {place: with_prompt(guidance, teacher, request) for (place, request), guidance in written}


def with_prompt(guidance: Guidance, teacher: GuidanceWriter, request: GuidanceRequest) -> Guidance:
    """Return guidance together with what the teacher was shown, which is derived where it does not say so itself."""
    return guidance if guidance.prompt is not None else replace(guidance, prompt=teacher.prompt(request))


def make_labels(
    certified: Sequence[Certified],
    guidance: Mapping[int, Guidance],
    solver: Solver,
    teacher: GuidanceWriter | None,
    filters: Sequence[Filter],
    label_version: str,
    vocabulary: Vocabulary = "certificate",
    prover: Prover | None = None,
    source: GuidanceSource = "facts",
) -> list[Label]:
    """Return one label per certified episode, in order; ``guidance`` is given by their indices."""
    equal: dict[str, Any] = {
        "label_version": label_version,
        "solver": solver.name,
        "solver_version": solver.version,
        "solver_config": canonical_json(solver.config),
        "teacher": None if teacher is None else teacher.name,
        "teacher_config": None
        if teacher is None
        else canonical_json({**teacher.config, "is_stand_in": teacher.is_stand_in}),
    }
    labels: list[Label] = []
    with Replays() as replays:
        for index, each in enumerate(certified):
            if isinstance(each.answer, Unsolved):
                answer = each.answer
                columns = {"reject_reasons": (RejectReason(answer.reason, answer.reason, answer.detail),)}
            else:
                draft, written = _draft(each, each.answer, guidance.get(index), solver, vocabulary, source, replays)
                columns = written | _judgement(each.episode, draft, guidance.get(index), filters, prover)
            labels.append(
                Label(
                    episode_id=each.episode.episode_id,
                    evidence=tuple(each.episode.evidence),
                    prompt_hash=each.prompt.prompt_hash,
                    image_hashes=shown_frames(each.prompt),
                    prompt=each.prompt,
                    **columns,
                    **equal,
                )
            )
    return labels


def _draft(
    certified: Certified,
    verdict: Verdict,
    written: Guidance | None,
    solver: Solver,
    vocabulary: Vocabulary,
    source: GuidanceSource,
    replays: Replays,
) -> tuple[Draft, dict[str, Any]]:
    """Return a label for the filters, and its columns of verdict, guidance and target."""
    episode = certified.episode
    facts = prose = ""
    if written is not None:
        facts, prose = _storable(written.rendered or ""), _storable(written.text)
        if written.choice is not None:  # else the stored text of one that is not known any more
            facts = domain_of(episode.env).sentences.render(written.choice, episode.episode_id)
    used: GuidanceSource = "prose" if source == "prose" and prose else "facts"
    guidance = prose if used == "prose" else facts
    target = build_target(verdict.pivot_step, target_mode(episode.env, verdict.failure_mode, vocabulary), guidance)
    shown = None if written is None else written.prompt
    columns = {each.name: getattr(verdict, each.name) for each in fields(Verdict)} | {
        "failure_reason": guidance,
        "guidance_source": used if guidance else None,
        "guidance_facts": facts or None,
        "guidance_prose": prose or None,
        "target": target,
        "teacher_prompt_hash": None if shown is None else shown.prompt_hash,
        "teacher_prompt": shown,
        "calls": () if written is None else written.calls,
    }
    text = None if written is None else guidance
    return Draft(verdict, text, target, solver, vocabulary, replays, used, certified.offer), columns


def _judgement(
    episode: FailedEpisode, draft: Draft, written: Guidance | None, filters: Sequence[Filter], prover: Prover | None
) -> dict[str, Any]:
    """Return the columns of what filters and prover say."""
    reasons = tuple(reason for rule in filters if (reason := rule.judge(episode, draft)) is not None)
    proof = Proof(undecided="no prover") if prover is None else prover.prove(episode.case(), draft.verdict)
    if not episode.evidence:
        reasons = (RejectReason(EVIDENCE, "unconfirmed", _UNCONFIRMED), *reasons)
    if proof.problems:
        reasons = (RejectReason(PROVER, "refuted", proof.problems[0]), *reasons)
    if written is not None and written.problem is not None:
        others = [reason for reason in reasons if reason.kind != EMPTY]
        reasons = (RejectReason(TEACHER, written.problem.kind, _storable(written.problem.detail)), *others)
    proved = None if proof.undecided is not None else proof.holds
    return {"accepted": not reasons, "proved": proved, "reject_reasons": reasons}


_UNCONFIRMED = (
    "nothing in the recording confirms the actions and the level; expected pictures, boards, states, rewards or ends "
    "that agree with the replay, or a source that is read in full: see pivot import --dry-run, and import it again"
)


def _check_rows(episode: FailedEpisode) -> None:
    steps = episode.num_steps
    lengths = {
        "payloads": len(episode.payloads),
        "rewards": len(episode.rewards),
        "infos": len(episode.infos),
        "action_valid": len(episode.action_valid),
        "frame_ids": len(episode.frame_ids) - 1,
    }
    optional = ("observations", "reply_outcomes", "finish_reasons", "submission_outcomes")
    lengths |= {name: len(getattr(episode, name)) for name in optional if getattr(episode, name)}
    wrong = [f"{name} of {length}" for name, length in lengths.items() if length != steps]
    if wrong or steps == 0:
        raise StoreError(
            f"episode {episode.episode_id} has {steps} actions, but {', '.join(wrong) or 'needs at least one'}; its "
            "stored rows do not belong together: roll it out again"
        )


def _storable(text: str) -> str:
    """Return a teacher's text with what no file can store (half surrogate pairs) replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
