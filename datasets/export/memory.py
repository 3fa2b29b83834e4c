"""``pivot.pairs`` and ``pivot.corrections``: rows for a trainer from verdicts and trajectories, in memory."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ...core.errors import CertifyError
from ...rollouts.dialect import Dialect
from ...rollouts.replies import Said, Writer
from ...solvers.base import Unsolved, Verdict
from ...solvers.cases import read_trajectories, shown
from ...solvers.closure.actions import members, own
from ...solvers.closure.batch import made
from ...solvers.closure.certified import OwnVerdict, is_equal, name_of

if TYPE_CHECKING:
    import gymnasium

Prompt = Callable[[Any, Sequence[tuple[Any, str]]], Any]
"""Function from an observation, and the observations and actions before it, to a text or to chat messages."""
Row = dict[str, Any]


def pairs(
    verdicts: Iterable[Verdict | Unsolved],
    trajectories: Iterable[Mapping[str, Any]],
    prompt: Prompt,
    *,
    make_env: "Callable[..., gymnasium.Env[Any, Any]] | None" = None,
    reply: Callable[[str], str] = str,
    actions_by_name: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Return preference pairs: at each pivot a safe reply against the fatal one, to the same prompt.

    Args:
        verdicts: answers of :func:`pivot.certify_batch`; an ``Unsolved`` gives no row.
        trajectories: its episodes. ``observations`` has what the agent saw before each action; without it
            ``make_env`` plays them again. With both, observations of one kind are compared, and those of another kind,
            such as pictures, are the agent's. ``replies`` has what the agent said; without it both sides are ``reply``.
        prompt: returns what the agent is asked: a text, or chat messages. A part ``{"type": "image", "image": ...}``
            adds its picture to the column ``images``.
        make_env: function that makes the environment, as for :func:`pivot.certify_batch`.
        reply: returns the reply with an action; by default its name.
        actions_by_name: actions by name, where trajectories hold members of the action space.

    Returns:
        Rows with ``prompt``, ``chosen`` and ``rejected`` in TRL's conversational form, ``images`` where there are any,
        the actions, ``t``, ``failure_mode`` and ``index``, that of the trajectory.
        ``datasets.Dataset.from_list`` makes a dataset of them.

    Raises:
        CertifyError: verdicts and trajectories do not belong together, or observations are missing or of another level.
    """
    rows, unread = list[Row](), list[str]()
    for row, verdict, trajectory, names in _turns(verdicts, trajectories, prompt, make_env, actions_by_name):
        t, fatal, safe = row["t"], names[verdict.pivot_step], row["action"]
        if t != verdict.pivot_step or verdict.fallback or fatal in verdict.feasible_actions:
            continue
        chosen, rejected = reply(safe), reply(fatal)
        if "replies" in trajectory:
            rejected = str(trajectory["replies"][t])
            writer = Writer(Dialect(), "action", sorted({*verdict.feasible_actions, *names, safe}))
            thought = f"The goal takes {verdict.certificate.before:g} turns from here. The next action is {safe}."
            if (written := writer.written(safe, Said(rejected), fatal, thought)) is None:
                unread.append(rejected)
                continue
            chosen = written.text
        sides = {"chosen": _answer(chosen), "rejected": _answer(rejected)}
        facts = {"chosen_action": safe, "rejected_action": fatal, "failure_mode": verdict.failure_mode}
        rows.append({**row, **sides, **facts})
    if unread:
        warnings.warn(
            f"{len(unread)} pairs are left out, whose reply does not hold its action as <action>NAME</action> or in "
            f"JSON, the first is {unread[0][:80]!r}; leave out replies to have the names of the actions on both sides",
            stacklevel=2,
        )
    return rows


def corrections(
    verdicts: Iterable[Verdict | Unsolved],
    trajectories: Iterable[Mapping[str, Any]],
    prompt: Prompt,
    *,
    make_env: "Callable[..., gymnasium.Env[Any, Any]] | None" = None,
    reply: Callable[[str], str] = str,
    actions_by_name: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Return certified corrections: the plan that still worked at each pivot, a row per turn.

    The arguments are those of :func:`pairs`. Without ``make_env`` only the first turn of a plan has a row, since
    nobody saw what follows it.

    Raises:
        CertifyError: see :func:`pairs`.
    """
    turns = _turns(verdicts, trajectories, prompt, make_env, actions_by_name)
    return [{**row, "completion": _answer(reply(row["action"]))} for row, *_ in turns]


def _turns(
    verdicts: Iterable[Verdict | Unsolved],
    trajectories: Iterable[Mapping[str, Any]],
    prompt: Prompt,
    make_env: Any,
    actions_by_name: Mapping[str, Any] | None,
) -> Iterator[tuple[Row, Verdict, Mapping[str, Any], list[str]]]:
    """Yield the turns of the plan of each labelled failure with prompt and action, and the names of its actions."""
    answers, played = [*verdicts], read_trajectories(trajectories)
    if len(answers) != len(played):
        raise CertifyError(f"verdicts: found {len(answers)} for {len(played)} trajectories, expected one for each")
    if not any(isinstance(each, Verdict) for each in answers) and answers:
        warnings.warn(f"no episode has a label, so there are no rows; the first: {answers[0]}", stacklevel=3)
    for index, (verdict, trajectory) in enumerate(zip(answers, played, strict=True)):
        if not isinstance(verdict, Verdict) or not verdict.witness:
            continue
        env = None if make_env is None else made(make_env, trajectory)
        named = dict(actions_by_name or {}) if env is None else members(env, actions_by_name)
        pivot, recorded = verdict.pivot_step, list(trajectory.get("observations", ()))
        if env is None and len(recorded) <= pivot:
            raise CertifyError(
                f"observations: found {len(recorded)}, expected one before each action; record them, or pass make_env"
            )
        if not named and not all(isinstance(action, str) for action in trajectory["actions"]):
            raise CertifyError("actions: found numbers without names; pass actions_by_name, or make_env")
        names = [name_of(named, action) for action in trajectory["actions"]]
        if isinstance(verdict, OwnVerdict) and verdict.actions != tuple(names):
            raise CertifyError(
                f"verdicts[{index}]: found the label of the actions {shown(verdict.actions)}, expected "
                f"{shown(tuple(names))}; pass trajectories in the order of the labels, and the same actions_by_name"
            )
        taken, seen = [*names[:pivot], *verdict.witness], recorded[: pivot + 1]
        if env is not None:
            try:
                seen = _replayed(env, trajectory, [named.get(name) for name in taken[:-1]], seen)
            except CertifyError as error:
                raise CertifyError(f"trajectories[{index}]: {error}") from None
        for t, action in enumerate(taken[pivot : len(seen)], pivot):
            cells = _prompt_cells(prompt(seen[t], [*zip(seen[:t], taken[:t], strict=True)]))
            yield {**cells, "action": action, "t": t, "index": index}, verdict, trajectory, names


def _replayed(env: Any, trajectory: Mapping[str, Any], actions: Sequence[Any], recorded: list[Any]) -> list[Any]:
    """Return the observations of a replay; those recorded if they are of another kind, such as pictures.

    Raises:
        CertifyError: a recorded observation differs from that of the replay.
    """
    seen = [deepcopy(env.reset(seed=trajectory.get("seed"), options=trajectory.get("options"))[0])]
    for action in actions:  # a turn whose word is not an action counts as a turn without an action
        seen.append(seen[-1] if action is None else deepcopy(env.step(own(action))[0]))
    equal = [is_equal(*each) for each in zip(recorded, seen, strict=False)]
    if False in equal:
        raise CertifyError(
            f"observations[{equal.index(False)}]: found another one than that of a replay; pass the seed, the options "
            "and the settings of the recorded episode"
        )
    return recorded if None in equal else seen


def _prompt_cells(messages: Any) -> Row:
    """Return a text or chat messages as the column ``prompt``, with their pictures in the column ``images``."""
    if isinstance(messages, str):
        return {"prompt": [{"role": "user", "content": messages}]}
    if not (
        isinstance(messages, list | tuple) and all(isinstance(each, Mapping) and "content" in each for each in messages)
    ):  # pyright: ignore[reportUnknownVariableType]
        raise CertifyError(f"prompt: found {shown(messages)}, expected a text or a list of chat messages")
    images, bare = list[Any](), list[Row]()
    for message in messages:
        parts: Any = message["content"]
        if not isinstance(parts, str):
            images += [_picture(part["image"]) for part in parts if part.get("type") == "image"]
            parts = [{"type": "image"} if part.get("type") == "image" else part for part in parts]
        bare.append({**message, "content": parts})
    return {"prompt": bare, **({"images": images} if images else {})}


def _picture(image: Any) -> Any:
    """Return a rendered frame, shape (height, width, 3), as a picture; anything else as it is."""
    is_frame = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3  # pyright: ignore[reportUnknownMemberType]
    return Image.fromarray(image) if is_frame else image


def _answer(text: str) -> list[Row]:
    return [{"role": "assistant", "content": text}]
