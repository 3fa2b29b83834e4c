"""Privileged contexts for self-distillation: the pivot's prompt for the student, and with hindsight for the teacher."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from ...core.images import decode
from ...core.messages import EncodedFrame, bare_messages, frames_in
from ...labeling.domains import domain_of
from ...labeling.hindsight import Hindsight, hindsight_text, teacher_prompt
from ..store.schema import IMAGE, LABELS, MESSAGES, STRINGS, Column, TableSchema
from .base import IMAGES, LABEL, PROMPT, TURN, LabelledEpisode, LabelledShard, TrainerExporter, provenance
from .turns import ShardTurns

PRIVILEGED = TableSchema(
    "privileged",
    "One row per accepted failure: its pivot.",
    (
        *TURN,
        PROMPT,
        IMAGES,
        Column("privileged_context", pa.string(), "Hindsight as text, for TRL's SDFT and SDPO, which drop pictures."),
        Column("teacher_prompt", MESSAGES, "The prompt with the hindsight and the panel, TRL conversational parts."),
        Column("teacher_images", pa.list_(IMAGE), "Pictures of `teacher_prompt`, in order; one is the panel."),
        Column("info", pa.string(), "JSON for prime-rl: `demonstration`, pivot step, mode, guidance, episode id."),
        *LABEL,
        *LABELS.only("failure_reason", "guidance_source"),
        Column("demonstration", STRINGS, "Actions of the plan that still worked, as the agent writes them; or null."),
    ),
    repeats=True,
)


class PrivilegedExporter(TrainerExporter):
    """Rows of privileged contexts."""

    name: ClassVar[str] = "privileged"
    plays: ClassVar[bool] = True
    shows_prompts: ClassVar[bool] = True
    summary: ClassVar[str] = (
        "Each row is the pivot of a failure: the agent's prompt, and the same prompt with hindsight about the failure."
    )

    def schema(self) -> TableSchema:
        """Return the columns."""
        return PRIVILEGED

    def rows(self, shard: LabelledShard) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a row per labelled failure."""
        with ShardTurns(shard) as turns:
            for each in shard.episodes():
                if each.label is not None and each.steps[each.label["pivot_step"]]["prompt_hash"]:
                    shared = provenance(each, shard.kind, (*TURN, *PRIVILEGED.columns))
                    yield each.side, shared | _row(shard, each, turns)


def _row(shard: LabelledShard, each: LabelledEpisode, turns: ShardTurns) -> dict[str, Any]:
    label, env = each.label or {}, shard.store.run.envs[shard.shard.env]
    step = each.steps[label["pivot_step"]]
    student = turns.stored_prompt(step)
    plan = turns.spoken(each, label["witness"] or ())
    panel = EncodedFrame.encode(decode(each.panel(label["pivot_step"])["bytes"]))
    text_only = Hindsight(
        ("mode", "pivot", "plan", "guidance"),
        *(step["t"], label["failure_mode"], label["failure_reason"], None),
        plan=tuple(plan),
        domain=domain_of(env.name, env.solver_settings, json.loads(each.episode["env_config"])),
    )
    hindsight = replace(text_only, parts=("panel", *text_only.parts), panel=panel)
    teacher = teacher_prompt(student, env.prompt, env.name, hindsight)

    def images(messages: Any) -> list[dict[str, Any]]:
        return [
            {"bytes": panel.image if name == panel.frame_id else each.frames.encoded(name), "path": None}
            for name in frames_in(messages)
        ]

    info = {
        "demonstration": "\n".join(plan),
        "pivot_step": step["t"],
        "failure_mode": label["failure_mode"],
        "guidance": label["failure_reason"],
        "episode_id": label["episode_id"],
    }
    return {
        "t": step["t"],
        "prompt": bare_messages(student.messages),
        "images": images(student.messages),
        "privileged_context": hindsight_text(env.name, text_only),
        "teacher_prompt": bare_messages(teacher.messages),
        "teacher_images": images(teacher.messages),
        "info": json.dumps(info, ensure_ascii=False, sort_keys=True),
        "demonstration": plan or None,
    }
