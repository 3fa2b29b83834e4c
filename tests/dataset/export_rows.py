"""Checks of the rows of an export against the proved rows of its store, without the code that wrote them.

Each check takes one row and yields what is wrong with it. The replies are read with the reply grammar: a chosen action
must be one that the label proves safe, a rejected one the action that it proves fatal.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pivot.core.images import decode, frame_id
from pivot.core.progress import Reporter
from pivot.datasets.store.config import Shard, environment
from pivot.datasets.store.schema import EPISODES, LABELS, PROMPTS, STEPS
from pivot.datasets.store.store import Store
from pivot.datasets.store.tables import Rows, steps_by_episode
from pivot.datasets.verify.exports import verify_export
from pivot.labeling.episode import PLAYED
from pivot.rollouts.parser import parse_reply
from pivot.solvers.base import TURN_SEPARATOR, Solver

Row = Mapping[str, Any]
Problems = Iterator[str]


@dataclass(frozen=True)
class Facts:
    """Rows of one shard of the store, by episode."""

    store: Store
    shard: Shard

    _envs: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def episodes(self) -> dict[str, Row]:
        """Rows of the table ``episodes``."""
        return {row["episode_id"]: row for row in self.store.read(EPISODES, self.shard).to_pylist()}

    @cached_property
    def steps(self) -> dict[str, Rows]:
        """Rows of the table ``steps``."""
        return steps_by_episode(self.store.read(STEPS, self.shard).to_pylist())

    @cached_property
    def labels(self) -> dict[str, Row]:
        """Rows of the table ``labels``."""
        return {row["episode_id"]: row for row in self.store.read(LABELS, self.shard).to_pylist()}

    @cached_property
    def _prompts(self) -> dict[str, str]:
        table = self.store.read(PROMPTS, self.shard, ["prompt_hash", "messages"])
        return dict(zip(table["prompt_hash"].to_pylist(), table["messages"].to_pylist(), strict=True))

    def shown(self, step: Row) -> list[str]:
        """Return the frames in the stored prompt of a step, in order."""
        contents = [message["content"] for message in json.loads(self._prompts[step["prompt_hash"]])]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        return [part["frame_id"] for part in parts if part["type"] == "image"]

    @cached_property
    def confirmed(self) -> dict[str, tuple[str, ...]] | None:
        """Return what confirms each episode, by the table of imports; None in a store of PIVOT's rollouts."""
        return self.store.evidence(self.shard)

    @cached_property
    def solver(self) -> Solver:
        """Solver of the environment."""
        return self.store.run.envs[self.shard.env].solver()

    def action(self, episode: Row, reply: str) -> str | None:
        """Return the action of a reply that keeps the whole format; None if it has none."""
        kind, settings = environment(self.shard.env), episode["env_config"]
        if settings not in self._envs:
            self._envs[settings] = kind.from_settings(json.loads(settings))
        rules, parse = kind.profile, self._envs[settings].parse_action
        parsed = parse_reply(reply, rules.answer_tag, parse, rules.reply_limit, keeps_case=rules.keeps_case)
        return parsed.action.name if parsed.action is not None and parsed.action_valid else None

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs.values():
            env.close()


def row_problems(kind: str, row: Row, facts: Facts) -> Problems:
    """Yield the problems of a row of a format."""
    episode = facts.episodes.get(row["episode_id"])
    if episode is None:
        yield "its episode is not in this shard of the store"
        return
    label = facts.labels.get(row["episode_id"])
    if row["certificate_kind"] != facts.solver.kind:
        yield f"certificate_kind is {row['certificate_kind']!r}, the solver gives {facts.solver.kind!r}"
    confirmed = list(PLAYED if facts.confirmed is None else facts.confirmed.get(row["episode_id"], ()))
    if row["evidence"] != confirmed or not confirmed:
        yield f"evidence is {row['evidence']}, the store has {confirmed or 'none, which makes no row'}"
    if kind == "credit":
        yield from CHECKS[kind](row, facts, episode, label or {})
    elif label is None or not label["accepted"]:
        yield "its episode has no accepted label"
    else:
        yield from _differences(row, {name: label[name] for name in ("label_version", "pivot_step", "failure_mode")})
        yield from CHECKS[kind](row, facts, episode, label)


def _differences(row: Row, expected: Row) -> Problems:
    return (f"{name} is {row[name]!r}, expected {right!r}" for name, right in expected.items() if row[name] != right)


def _reply(messages: Any) -> str:
    """Return the text of the assistant's last message."""
    content = messages[-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] or "" for part in content)


def _pictures(row: Row, names: list[str]) -> Problems:
    """Check that the pictures are stored frames, by the digest of their pixels."""
    if [frame_id(decode(image["bytes"])) for image in row["images"] or ()] != names:
        yield "its pictures are not the stored frames"


def _correction(row: Row, facts: Facts, episode: Row, label: Row) -> Problems:
    plan, place = label["witness"] or [], row["t"] - label["pivot_step"]
    if not 0 <= place < len(plan):
        yield f"t is {row['t']}, outside the plan from step {label['pivot_step']}"
        return
    reply = _reply(row["completion"])
    expected = {"action": plan[place], "need": len(plan) - place, "turns_left": episode["horizon"] - row["t"]}
    yield from _differences(row, expected)
    if (action := facts.action(episode, reply)) != plan[place]:
        yield f"its reply has the action {action!r}, the plan has {plan[place]!r}"
    yield from _sibling(row, facts, reply)
    steps = facts.steps[row["episode_id"]]
    if place == 0:
        yield from _pictures(row, facts.shown(steps[row["t"]]))
    past = [*(step["action"] for step in steps[: label["pivot_step"]]), *plan[:place]]
    recent = "; ".join(f"step {number}: {action}" for number, action in [*enumerate(past, 1)][-2:])
    for shown in re.findall(r"The last ones: (.*?)\.", str(row)):
        if shown != recent:
            yield f"its prompt shows the past {shown!r}, expected {recent!r}"


def _pair(row: Row, facts: Facts, episode: Row, label: Row) -> Problems:
    if row["t"] != label["pivot_step"] or label["fallback"]:
        yield f"t is {row['t']}, but the fatal step is {None if label['fallback'] else label['pivot_step']}"
        return
    step = facts.steps[row["episode_id"]][row["t"]]
    chosen, safe = _reply(row["chosen"]), label["feasible_actions"]
    if (action := facts.action(episode, chosen)) not in safe or action != row["chosen_action"]:
        yield f"its chosen reply has the action {action!r}, safe are {', '.join(safe)}"
    if _reply(row["rejected"]) != step["response"]:
        yield "its rejected reply is not the agent's"
    if step["action"] in safe or row["rejected_action"] != step["action"]:
        yield f"rejected_action is {row['rejected_action']!r}, the agent took {step['action']!r}; safe are {safe}"
    if row["safe_actions"] != safe:
        yield f"safe_actions are {row['safe_actions']}, the label has {safe}"
    yield from _sibling(row, facts, chosen)
    yield from _pictures(row, facts.shown(step))


def _sibling(row: Row, facts: Facts, reply: str) -> Problems:
    """Check that a reply with a sibling_id is the stored reply of that rollout to the same prompt."""
    column = "chosen_from" if "chosen_from" in row else "thought"
    origin, name, t = row[column], row["sibling_id"], row["sibling_t"]
    template = "witness" if column == "chosen_from" else "template"
    right = template if name is None else "own" if name == row["episode_id"] else "sibling"
    if origin != right:
        yield f"{column} is {origin!r}, its sibling_id means {right!r}"
    if name is None:
        return
    steps = facts.steps.get(name, [])
    step = steps[t] if isinstance(t, int) and 0 <= t < len(steps) else None
    if step is None or (name == row["episode_id"] and t == row["t"]):
        yield f"its reply is said to be of {name!r}, step {t}, which is not another stored step"
    elif step["response"] != reply or step["prompt_hash"] != row["prompt_hash"]:
        yield "its reply is not the stored reply to the same prompt"


def _credit(row: Row, facts: Facts, episode: Row, label: Row) -> Problems:
    steps, t = facts.steps.get(row["episode_id"], []), row["t"]
    if not 0 <= t < len(steps):
        yield f"t is {t}, outside the episode"
        return
    before, after = row["need_before"], row["need_after"]
    stored = [(before, steps[t]["need"]), *([(after, steps[t + 1]["need"])] if t + 1 < len(steps) else [])]
    if facts.solver.config == type(facts.solver)().config:  # else the stored needs, of default settings, are others
        yield from (f"a need is {mine}, the step has {need}" for mine, need in stored if need not in (None, mine))
    left = episode["horizon"] - 1 - t
    slack = None if after is None else left - after
    expected = {
        "action": steps[t]["action"],
        "reward": steps[t]["reward"],
        "success": episode["success"],
        "slack": slack,
        "within_reach": slack is not None and slack >= 0,
        "progress": None if before is None or after is None else before - after,
    }
    pivot = label.get("pivot_step") if not label.get("fallback") else None
    if row["certificate_kind"] == "exact":
        expected["is_pivot"] = t == pivot
        expected |= {"safe_actions": label["feasible_actions"]} if t == pivot else {}
    yield from _differences(row, expected)
    regained = (after is not None) - (before is not None)
    scores = {
        "progress": regained if expected["progress"] is None else expected["progress"],
        "slack": slack if expected["within_reach"] else -1,
        "pivot": -int(row["is_pivot"]),
    }
    if row["score"] != scores.get(row["rule"]):
        yield f"score is {row['score']}, the rule {row['rule']!r} gives {scores.get(row['rule'])}"


def _privileged(row: Row, facts: Facts, episode: Row, label: Row) -> Problems:
    if row["t"] != label["pivot_step"]:
        yield f"t is {row['t']}, the pivot is {label['pivot_step']}"
        return
    plan = [text.replace(", ", TURN_SEPARATOR) for text in row["demonstration"] or ()]
    if plan != (label["witness"] or []):
        yield f"demonstration is {row['demonstration']}, the label has {label['witness']}"
    expected = {"demonstration": "\n".join(row["demonstration"] or ()), "pivot_step": label["pivot_step"]}
    expected |= {"failure_mode": label["failure_mode"], "guidance": label["failure_reason"]}
    if json.loads(row["info"]) != expected | {"episode_id": row["episode_id"]}:
        yield f"info is {row['info']!r:.200}, expected {expected!r:.200}"
    if ", then ".join(row["demonstration"] or ()) not in row["privileged_context"]:
        yield "privileged_context lacks the plan"
    if row["failure_reason"] != label["failure_reason"]:
        yield "failure_reason is not the label's"
    yield from _pictures(row, facts.shown(facts.steps[row["episode_id"]][row["t"]]))


def _analyzer(row: Row, facts: Facts, episode: Row, label: Row) -> Problems:
    if _reply(row["messages"]) != label["target"]:
        yield "its answer is not the target of the label"
    if row["prompt_hash"] != label["prompt_hash"]:
        yield "prompt_hash is not the label's"


CHECKS: Mapping[str, Callable[[Row, Facts, Row, Row], Problems]] = {
    "credit": _credit,
    "corrections": _correction,
    "pairs": _pair,
    "privileged": _privileged,
    "analyzer": _analyzer,
}
"""Checks by format."""


def rows_of(target: Path, kind: str) -> list[dict[str, Any]]:
    """Return the rows of an export, in the order of the names of their files."""
    return [row for path in sorted((target / kind).rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def export_problems(store: Path, target: Path) -> list[str]:
    """Return what verify reports about an export."""

    def stream(call: Callable[..., Any], arguments: Any) -> Any:
        return (call(*each) for each in arguments)

    return verify_export(store, target, Reporter(), stream).problems
