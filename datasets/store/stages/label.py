"""Label the failed episodes of a shard: certify them, ask the teacher for guidance, and judge the labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from ....core.identity import digest
from ....core.messages import Call
from ....core.records import from_row, to_row
from ....labeling.analyzer import VERSIONS
from ....labeling.base import UNANSWERED, Guidance, GuidanceRequest, GuidanceWriter
from ....labeling.label import (
    TEACHER,
    Certified,
    certify_episodes,
    guidance_requests,
    make_labels,
    with_prompt,
    write_guidance,
)
from ..config import FORMAT
from ..schema import CALLS, LABELS, PROMPTS, TableSchema
from ..store import Store, shard_frames, stored_failures
from .base import LABEL, ROLLOUT, Pending, Product, Stage, file_digests

if TYPE_CHECKING:
    from ..guidance import EarlierGuidance


@dataclass(frozen=True)
class LabelStage(Stage):
    """Labels the failures of a shard; asks the teacher only for guidance that the store does not hold."""

    earlier: "EarlierGuidance | None" = None

    title: ClassVar[str] = LABEL
    sparse: ClassVar[bool] = True
    pending_fact: ClassVar[str | None] = UNANSWERED

    @property
    def name(self) -> str:
        """Name of the stage in receipts: each label version has its own."""
        return f"{LABEL}-v{self.store.config.label_version}"

    def inputs(self) -> str:
        """Return the digest of everything that decides the labels."""
        store, run, config = self.store, self.store.run, self.store.config
        env, teacher = run.envs[self.shard.env], run.writer()
        solver, prover = env.solver(), env.prover(quick=True)
        return digest(
            {
                "format": FORMAT,
                "rollouts": file_digests(store, ROLLOUT, self.shard),
                "solver": [solver.name, solver.version, solver.config],
                "teacher": [teacher.name, teacher.config],
                "guidance": config.guidance,
                "filters": [type(each).__qualname__ for each in run.filters(self.shard.env)],
                "prover": None if prover is None else type(prover).__qualname__,
                "label_version": config.label_version,
                "target_vocabulary": config.target_vocabulary,
                "analyzer": VERSIONS[config.log],
            }
        )

    def make(self, pending: Pending) -> Product:
        """Certify the failures and have the teacher write the missing guidance."""
        certified, requests = self.certify()
        return self.product(pending, certified, write_guidance(self.writer(pending), requests))

    def certify(self) -> tuple[list[Certified], dict[int, GuidanceRequest]]:
        """Return the certified failures, and the requests to the teacher by the index of the failure."""
        store, config = self.store, self.store.config
        frames = shard_frames(store, self.shard) if store.run.writer().needs_pictures else {}
        solver = store.run.envs[self.shard.env].solver()
        certified = certify_episodes(stored_failures(store, self.shard), solver, config.target_vocabulary, config.log)
        return certified, guidance_requests(certified, config.target_vocabulary, frames)

    def writer(self, pending: Pending) -> GuidanceWriter:
        """Return the teacher of the run; valid stored guidance is used instead of asking it."""
        store, writer = self.store, self.store.run.writer()
        if pending.episodes is None and (self.earlier is None or not store.run.writer_is_served):
            return writer
        from ..guidance import KeptGuidance, guidance_of_version, stored_guidance  # noqa: PLC0415 - only to resume

        if pending.episodes is not None:
            stored = stored_guidance(store, self.shard, store.read(LABELS, self.shard).to_pylist())
            return KeptGuidance(writer, {name: each for name, each in stored.items() if name not in pending.episodes})
        assert self.earlier is not None
        return guidance_of_version(store, self.shard, self.earlier, writer)

    def kept_guidance(self, pending: Pending, requests: Mapping[int, GuidanceRequest]) -> dict[int, Guidance]:
        """Return stored guidance that still answers, by the index of the failure."""
        from ..guidance import KeptGuidance  # noqa: PLC0415 - only for models

        teacher = self.writer(pending)
        if not isinstance(teacher, KeptGuidance):
            return {}
        kept = {index: (request, teacher.kept(request)) for index, request in requests.items()}
        return {index: with_prompt(each, teacher, request) for index, (request, each) in kept.items() if each}

    def product(self, pending: Pending, certified: list[Certified], guidance: Mapping[int, Guidance]) -> Product:
        """Judge the labels and return their tables."""
        store, run = self.store, self.store.run
        env = run.envs[self.shard.env]
        labels = make_labels(
            certified,
            guidance,
            env.solver(),
            run.writer(),
            run.filters(self.shard.env),
            str(run.config.label_version),
            run.config.target_vocabulary,
            env.prover(quick=True),
            run.config.guidance or "facts",
        )
        calls = [call for label in labels for call in label.calls]
        if (name := store.label_calls_file(self.shard)) is not None:
            calls = _all_calls(store, name, pending, calls)
        shown = [label.teacher_prompt for label in labels if label.teacher_prompt is not None]
        prompts = {each.prompt_hash: each for each in (*(label.prompt for label in labels), *shown)}
        rows = {LABELS: labels, PROMPTS: prompts.values(), CALLS: calls}
        return self.product_of({schema: schema.table(list(map(to_row, each))) for schema, each in rows.items()})

    def product_of(self, tables: Mapping[TableSchema, pa.Table]) -> Product:
        """Return the labels of the shard with their prompts, and with their calls if the teacher is a model."""
        store, shard = self.store, self.shard
        names = {LABELS: store.table_file(LABELS, shard), PROMPTS: store.label_prompts_file(shard)}
        if (calls := store.label_calls_file(shard)) is not None:
            names[CALLS] = calls
        columns = ["episode_id", "pivot_step", "accepted", "proved", "reject_reasons"]
        rows, unanswered = tables[LABELS].select(columns).to_pylist(), (TEACHER, UNANSWERED)
        facts = {
            "labels": len(rows),
            "accepted": sum(row["accepted"] for row in rows),
            "rejected": sum(not row["accepted"] for row in rows),
            "unproved": sum(row["proved"] is None and row["pivot_step"] is not None for row in rows),
            UNANSWERED: [
                row["episode_id"]
                for row in rows
                if any((reason["name"], reason["kind"]) == unanswered for reason in row["reject_reasons"])
            ],
        }
        return Product([(name, schema, tables[schema]) for schema, name in names.items()], facts)


def _all_calls(store: Store, name: str, pending: Pending, made: list[Call]) -> list[Call]:
    """Return the calls of a shard's labels, with earlier calls of labels whose teacher did not answer then."""
    if pending.episodes is None:
        return made
    from ..usage import calls_in_all  # noqa: PLC0415 - only for a shard that is completed

    stored = [from_row(Call, row) for row in store.read_file(name, CALLS).to_pylist()]
    before = [call for call in stored if call.episode_id in pending.episodes]
    return calls_in_all(before, made, pending.episodes)
