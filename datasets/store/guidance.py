"""Guidance writers that repeat stored guidance, for builds that resume or relabel, and for ``pivot verify``."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.identity import canonical_json
from ...core.messages import Call, PromptMessages
from ...core.plugins import Settings
from ...core.records import from_row
from ...labeling.base import Guidance, GuidanceRequest, GuidanceWriter, Objection
from ...labeling.label import TEACHER
from .config import Shard
from .schema import CALLS, LABELS
from .store import Store


class StoredGuidance(GuidanceWriter):
    """Returns the stored guidance of every label, under the name and config of the teacher that wrote it."""

    config_type = Settings

    def __init__(
        self, teacher: GuidanceWriter, stored: Mapping[str, Guidance], config: dict[str, Any] | None = None
    ) -> None:
        """Take ``stored``, the guidance by episode; ``config`` is the writer's config if the rows have it."""
        self.name = teacher.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self.is_stand_in = teacher.is_stand_in  # pyright: ignore[reportAttributeAccessIssue]
        self.needs_pictures = teacher.needs_pictures  # pyright: ignore[reportAttributeAccessIssue]
        self._teacher = teacher
        self._config = teacher.config if config is None else config
        self._stored = stored

    @property
    def config(self) -> dict[str, Any]:
        """The config of the teacher that wrote the texts."""
        return self._config

    def prompt(self, request: GuidanceRequest) -> PromptMessages | None:
        """Return the prompt of the teacher, which is recomputed, not stored."""
        return self._teacher.prompt(request)

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Give the stored texts, in order."""
        return [self._stored.get(request.episode.episode_id, Guidance()) for request in requests]


class KeptGuidance(StoredGuidance):
    """Writer that returns stored guidance if there is some, and asks the teacher for the rest."""

    def __init__(
        self, teacher: GuidanceWriter, stored: Mapping[str, Guidance], shown: Mapping[str, str] | None = None
    ) -> None:
        """Keep ``stored``, the guidance by episode.

        With ``shown``, the digests of the stored prompts, guidance is kept only if its prompt has not changed.
        """
        super().__init__(teacher, stored)
        self._shown = shown

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Answer ``requests``, in order; the errors are the teacher's."""
        kept = [self.kept(request) for request in requests]
        rest = [request for request, each in zip(requests, kept, strict=True) if each is None]
        fresh = iter(self._teacher.write(rest))
        return [next(fresh) if each is None else each for each in kept]

    def kept(self, request: GuidanceRequest) -> Guidance | None:
        """Return the stored guidance; None for a label that the teacher has to be asked about."""
        episode = request.episode.episode_id
        if self._shown is not None:
            prompt = self.prompt(request)
            if prompt is None or self._shown.get(episode) != prompt.prompt_hash:
                return None
        return self._stored.get(episode)


class EarlierGuidance(NamedTuple):
    """Guidance of a label version that is stored; it is kept where the teacher would get the same request."""

    version: int
    only_accepted: bool = False
    """Whether the teacher is asked again for labels that were rejected because of its answer."""


def guidance_of_version(
    store: Store, shard: Shard, earlier: EarlierGuidance, writer: GuidanceWriter, unanswered: Collection[str] = ()
) -> GuidanceWriter:
    """Return a writer that keeps its earlier guidance if the request has not changed.

    It asks again for the episodes in ``unanswered``. ``writer`` itself is returned if the labels of that version are
    missing, or another writer wrote them.
    """
    then = Store(store.root, store.config.model_copy(update={"label_version": earlier.version}))
    if store.storage.stat(then.table_file(LABELS, shard)) is None:
        return writer
    config = canonical_json({**writer.config, "is_stand_in": writer.is_stand_in})
    labels = [
        row
        for row in then.read(LABELS, shard).to_pylist()
        if (row["teacher"], row["teacher_config"]) == (writer.name, config)
        and row["teacher_prompt_hash"] is not None
        and row["episode_id"] not in unanswered
    ]
    if earlier.only_accepted:
        judges = {TEACHER, *(rule.name for rule in then.run.filters(shard.env) if rule.judges_text)}
        labels = [row for row in labels if judges.isdisjoint(reason["name"] for reason in row["reject_reasons"])]
    shown = {row["episode_id"]: row["teacher_prompt_hash"] for row in labels}
    return KeptGuidance(writer, stored_guidance(then, shard, labels), shown) if labels else writer


def stored_guidance(store: Store, shard: Shard, labels: Sequence[Mapping[str, Any]]) -> dict[str, Guidance]:
    """Return the guidance of a shard's stored label rows by episode, with its requests."""
    calls = store.label_calls_file(shard)
    spent: dict[str, list[Call]] = {}
    for call in [] if calls is None else store.read_file(calls, CALLS).to_pylist():
        spent.setdefault(call["episode_id"], []).append(from_row(Call, call))
    guidance: dict[str, Guidance] = {}
    for row in labels:
        problems = [
            Objection(reason["kind"], reason["detail"]) for reason in row["reject_reasons"] if reason["name"] == TEACHER
        ]
        guidance[row["episode_id"]] = Guidance(
            row["guidance_prose"] or "",
            problems[0] if problems else None,
            tuple(spent.get(row["episode_id"], ())),
            rendered=row["guidance_facts"] or "",
        )
    return guidance
