"""The types of labelling: the failed episode that goes in, the label that comes out, teachers and filters.

A failed episode is plain data read from stored rows; a solver pins the pivot and the mode, a teacher may write
guidance, and every filter judges the result. Rejected labels are kept with all their reasons, and
counts are taken from the stored labels.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from ..core.contracts import Answer, Fits, JsonObject, Misfit, Misfits, Terms
from ..core.messages import Call, PromptMessages
from ..core.plugins import WORD, Plugin, Settings
from ..core.records import Stored
from ..environments.base import EnvProfile
from ..solvers.base import Certificate, Solver, Verdict
from .action_log import FLOAT_DECIMALS
from .episode import FailedEpisode, Vocabulary
from .replay import Replays
from .statements import Choice, Offer


@dataclass(frozen=True, slots=True)
class Objection:
    """An objection to a label or an answer."""

    kind: str
    """A word that can be counted and decided upon."""
    detail: str
    """Description for people."""

    def __str__(self) -> str:
        """Return both as one text."""
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class RejectReason:
    """Why a label is not accepted."""

    name: Annotated[str, Stored("Filter that rejected the label, or the solver's reason for giving no verdict.")]
    kind: Annotated[str, Stored("Kind of the finding.")]
    detail: Annotated[str, Stored("Description of the finding.")]

    def __str__(self) -> str:
        """Return kind and detail as one text."""
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One row of the ``labels`` table. Without a verdict, everything the verdict decides is None."""

    episode_id: Annotated[str, Stored("Episode.")]
    label_version: Annotated[str, Stored("`1` for a new store; `pivot relabel` increments it.")]
    pivot_step: Annotated[int | None, Stored("t*; null where the solver has no answer.")] = None
    failure_mode: Annotated[str | None, Stored("m*; null where the solver has no answer.")] = None
    secondary_modes: Annotated[tuple[str, ...], Stored("Other modes that also match.")] = ()
    fallback: Annotated[bool | None, Stored("Whether no action was fatal, so that t* = T-1 by convention.")] = None
    infeasible_at_start: Annotated[bool | None, Stored("Whether the goal was out of budget before any action.")] = None
    certificate: Annotated[
        Certificate | None, Stored("The facts behind the label; those of kind `exact` prove it.")
    ] = None
    witness: Annotated[
        tuple[str, ...] | None, Stored("Plan that still solved the task from s_{t*}; null if there is none.")
    ] = None
    feasible_actions: Annotated[
        tuple[str, ...] | None, Stored("Actions at s_{t*} after which the goal was still within budget.")
    ] = None
    failure_reason: Annotated[str | None, Stored("Guidance r*; empty without any.")] = None
    target: Annotated[str | None, Stored("The Analyzer's answer, JSON.")] = None
    accepted: Annotated[bool, Stored("Whether the record passed every filter.")] = False
    proved: Annotated[bool | None, Stored("Whether an independent prover agreed; null for an unproved label.")] = None
    reject_reasons: Annotated[tuple[RejectReason, ...], Stored("Every reason against it: rule, kind and detail.")]
    solver: Annotated[str, Stored("Solver that found the label.")]
    solver_version: Annotated[str, Stored("Version of the solver.")]
    solver_config: Annotated[str, Stored("Solver settings, JSON.")]
    teacher: Annotated[
        str | None,
        Stored("Writer of the guidance; `template` is built in, in place of a model. Null without guidance."),
    ]
    teacher_config: Annotated[str | None, Stored("Version, model, revision and sampling of the teacher, JSON.")]
    teacher_prompt_hash: Annotated[
        str | None, Stored("Key into `prompts` of the teacher's prompt; null for a teacher that reads none.")
    ] = None
    prompt_hash: Annotated[str, Stored("Digest of the Analyzer prompt with its collage.")]
    image_hashes: Annotated[tuple[str, ...], Stored("Names of the pictures that the prompt shows: the collage.")]
    prompt: PromptMessages = field(repr=False)
    """The rendered prompt itself; stored once per hash in ``prompts``, not in the row."""
    guidance_source: Annotated[
        str | None,
        Stored(
            "`facts`: the guidance was rendered from checked facts; `prose`: a model wrote it freely and nothing "
            "proves it. Null without guidance."
        ),
    ] = None
    guidance_facts: Annotated[
        str | None, Stored("Sentences rendered from the facts that the teacher selected; null without any.")
    ] = None
    guidance_prose: Annotated[
        str | None, Stored("The teacher's own text, unverified; in no target by default. Null without one.")
    ] = None
    pivot_action: Annotated[
        int | None,
        Stored(
            "With turns of several actions, the index within turn t* of the first action after which the goal was out "
            "of reach in the actions left. Null for turns of one action, and where no action of the turn made it so."
        ),
    ] = None
    evidence: Annotated[
        tuple[str, ...],
        Stored(
            "Confirmation of the actions and the level: `played` for a rollout of PIVOT; what a recording confirms "
            "(`picture`, `board`, `state`, `reward`, `end`, `info`), or how its source was read (`success`, "
            "`read`, `declared`). A label without any is not accepted."
        ),
    ] = ()
    teacher_prompt: PromptMessages | None = field(default=None, repr=False)
    """Prompt of the teacher; stored like ``prompt``."""
    calls: tuple[Call, ...] = field(default=(), repr=False)
    """Every request that was made for the guidance."""


@dataclass(frozen=True, slots=True)
class GuidanceRequest:
    """A label that needs guidance: its proved facts and the Analyzer's prompt."""

    profile: EnvProfile
    episode: FailedEpisode
    verdict: Verdict
    prompt: PromptMessages
    offer: Offer
    """The checked statements that the teacher may choose from."""
    vocabulary: Vocabulary = "certificate"
    """Names of failure modes in the target."""
    frames: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    """Encoded pictures by frame id, at least those of the episode; empty for a teacher without ``needs_pictures``."""
    decimals: int = FLOAT_DECIMALS
    """Decimals of measurements in the log of this episode; see :func:`.action_log.log_decimals`."""
    settings: Settings | None = None
    """Settings of the solver; None for the default ones."""


EMPTY = "empty"
"""Kind of the objection to missing guidance; dropped if the teacher reports the reason."""

UNANSWERED = "unanswered"
"""Kind of the objection to a label whose writer did not answer; the next run asks again."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """Answer of a teacher: a choice of checked statements, and perhaps free text."""

    text: str = ""
    """Free text of the teacher. It is stored as unverified prose, and enters targets only with ``guidance: prose``."""
    problem: Objection | None = None
    """Why the answer gives no guidance; the label is then rejected by ``teacher``."""
    calls: tuple[Call, ...] = ()
    """The requests to a model that were needed."""
    prompt: PromptMessages | None = field(default=None, repr=False)
    """First prompt of the teacher, if the caller still has it."""
    choice: Choice | None = None
    """The chosen statements of the request's offer, from which the guidance is rendered."""
    rendered: str | None = None
    """The rendered text of a choice that is no longer known, from a store; the filters read it back."""


def _count_misfits(_: "GuidanceWriter", written: list[Guidance], requests: Sequence[GuidanceRequest]) -> Misfits:
    """Yield a list of guidance that is not as long as the list of requests."""
    if len(written) != len(requests):
        yield Misfit("", written, f"{len(requests)} answers, one per request")


class GuidanceWriter(Plugin, ABC):
    """Writes the guidance ``r*`` of certified failures: what to avoid and what to do at the pivot instead."""

    name: str
    is_stand_in: ClassVar[bool] = False
    """True for a built-in writer that replaces a model; wherever its rows appear, this is stated."""
    served: ClassVar[bool] = False
    """True for a writer that waits for a model; its calls are stored."""
    one_process: bool = False
    """True for a model that is loaded into this process: all shards are then labelled in one process."""
    needs_pictures: ClassVar[bool] = False
    """Whether requests have to contain the frames of their episodes."""
    terms: ClassVar[Terms] = Terms(
        attributes={"name": str, "is_stand_in": bool, "served": bool, "one_process": bool, "needs_pictures": bool},
        answers={
            "config": Answer(JsonObject),
            "prompt": Answer(PromptMessages | None),
            "write": Answer(list[Guidance], _count_misfits),
        },
    )

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Everything that decides the texts (version, model, revision, sampling), as stored with every label."""

    def check(self) -> None:
        """Check before a long run that everything that the teacher needs is installed.

        Raises:
            PluginError: something is missing; the message says how to install it.
        """

    async def preflight(self) -> None:
        """Send the model one small request before a run begins, if it is behind a server.

        Raises:
            ConfigError, PluginError, ServerGoneError, CacheError: the run cannot use the model.
        """

    def prompt(self, request: GuidanceRequest) -> PromptMessages | None:
        """Return the teacher's prompt for a request; None for a teacher that reads the facts alone."""
        del request
        return None

    @abstractmethod
    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Answer ``requests``, in order.

        Raises:
            PolicyError: the teacher could not answer at all.
        """


GuidanceSource = Literal["facts", "prose"]
"""Source of the guidance in targets: sentences rendered from checked facts, or the free text of the teacher."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A label before the filters have judged it."""

    verdict: Verdict
    guidance: str | None
    """The guidance of the target; None when no teacher was asked."""
    target: str
    solver: Solver
    """The solver that gave the verdict, for rules that need its answer about a different state."""
    vocabulary: Vocabulary = "certificate"
    """Names of failure modes in the target."""
    replays: Replays = field(default_factory=Replays, repr=False, compare=False)
    """Re-executes episodes, for rules that need the true course of the episode: ``draft.replays.of(episode)``."""
    source: GuidanceSource = "facts"
    """Source of the guidance."""
    offer: Offer | None = None
    """The checked statements about the failure; None where they are still to be derived."""


def _kind_misfits(_: "Filter", objection: Objection | None, *__: Any) -> Misfits:
    """Yield the kind of an objection that cannot be counted."""
    if objection is not None and not WORD.fullmatch(objection.kind):
        yield Misfit("kind", objection.kind, "a word of lower-case letters, digits and underscores")


class Filter(Plugin, ABC):
    """One rule of the loose factual filter. A new rule is one subclass and one entry point."""

    name: ClassVar[str]
    environments: ClassVar[frozenset[str] | None] = None
    """Environments that the rule judges; None for all."""
    judges_text: ClassVar[bool] = False
    """Whether the rule judges the guidance alone, and not the label."""
    terms: ClassVar[Terms] = Terms(
        attributes={
            "name": Annotated[str, Fits(lambda name: bool(WORD.fullmatch(name)), "a word of a column")],
            "environments": frozenset[str] | None,
            "judges_text": bool,
        },
        answers={"check": Answer(Objection | None, _kind_misfits)},
    )

    @abstractmethod
    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return what is wrong with the label, or None when nothing is."""

    def judge(self, episode: FailedEpisode, draft: Draft) -> RejectReason | None:
        """Return the countable reason to reject the label, or None; labels of environments not judged are accepted."""
        if self.environments is not None and episode.env not in self.environments:
            return None
        objection = self.check(episode, draft)
        return None if objection is None else RejectReason(self.name, objection.kind, objection.detail)
