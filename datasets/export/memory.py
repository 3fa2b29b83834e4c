"""Rows for a trainer from verdicts and trajectories in memory: ``pairs``, ``corrections``, ``analyzer_rows``."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ...collage import collage
from ...core.errors import CertifyError
from ...core.plugins import Settings
from ...environments.gym.environment import GymEnv
from ...labeling.analyzer import analyzer_text
from ...labeling.domains import domain_of
from ...labeling.episode import FailedEpisode
from ...labeling.label import guidance_request, write_guidance
from ...labeling.target import build_target
from ...labeling.writers.template import TemplateWriter
from ...rollouts.dialect import Dialect
from ...rollouts.replies import Said, Writer
from ...solvers.base import Unsolved, Verdict
from ...solvers.cases import read_trajectories, shown
from ...solvers.closure.actions import allowed, members, own
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
        CertifyError: verdicts and trajectories do not belong together, observations are missing or of another level,
            or replies are missing.
    """
    rows, unread = list[Row](), list[str]()
    for row, verdict, trajectory, names in _turns(verdicts, trajectories, prompt, make_env, actions_by_name):
        t, fatal, safe = row["t"], names[verdict.pivot_step], row["action"]
        if t != verdict.pivot_step or verdict.fallback or fatal in verdict.feasible_actions:
            continue
        chosen, rejected = reply(safe), reply(fatal)
        if "replies" in trajectory:
            replies = trajectory["replies"]
            if len(replies) < len(names):
                raise CertifyError(
                    f"trajectories[{row['index']}]: replies: found {len(replies)}, expected {len(names)}, one per turn"
                )
            rejected = str(replies[t])
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

    The arguments are those of :func:`pairs`. Without ``make_env``, and with recorded pictures, only the first turn of
    a plan has a row, since nobody saw what follows it.

    Raises:
        CertifyError: see :func:`pairs`.
    """
    turns = _turns(verdicts, trajectories, prompt, make_env, actions_by_name)
    return [{**row, "completion": _answer(reply(row["action"]))} for row, *_ in turns]


def analyzer_rows(
    verdicts: Iterable[Verdict | Unsolved],
    trajectories: Iterable[Mapping[str, Any]],
    task: str,
    *,
    make_env: "Callable[..., gymnasium.Env[Any, Any]] | None" = None,
    actions_by_name: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Return rows from which an Analyzer learns to read a failure: collage and action log, and the label as JSON.

    Prompt, collage and target are those of a store that is built with ``--log actions``. A failure that no action lost
    has no row.

    Args:
        verdicts: answers of :func:`pivot.certify_batch`; an ``Unsolved`` gives no row.
        trajectories: its episodes. ``frames`` has the picture before each action, RGB, shape (height, width, 3);
            without it ``make_env`` draws them, and has to make environments with ``render_mode="rgb_array"``.
        task: what the agent was to do, a sentence.
        make_env: see :func:`pairs`.
        actions_by_name: see :func:`pairs`.

    Returns:
        Rows with ``prompt``, ``completion`` and ``images`` in TRL's conversational form, ``pivot_step``,
        ``failure_mode`` and ``index``, that of the trajectory.

    Raises:
        CertifyError: verdicts and trajectories do not belong together, or pictures are missing.
    """
    profile, writer = replace(GymEnv.profile, task_description=task), TemplateWriter(Settings())
    rows: list[Row] = []
    for index, verdict, trajectory, env, named, names in _labelled(verdicts, trajectories, make_env, actions_by_name):
        if verdict.fallback or verdict.infeasible_at_start:
            continue
        frames = list(trajectory.get("frames", ()))[: len(names)]
        if not frames and env is not None:
            frames = _drawn(env, trajectory, [named.get(name) for name in names])
        if len(frames) < len(names):
            raise CertifyError(
                f"trajectories[{index}]: found {len(frames)} frames for {len(names)} actions; record a picture before "
                'each, or pass make_env with render_mode="rgb_array"'
            )
        ids = tuple(f"{index}-{t}" for t in range(len(names) + 1))
        nothing: list[Any] = [None] * len(names)
        episode = FailedEpisode(
            *(f"{index} {' '.join(names)}", profile.name, profile.version, {}, str(index), task, "{}"),
            *(trajectory["horizon"], names, nothing, [0.0] * len(names), [{}] * len(names), [True] * len(names), ids),
        )
        request = guidance_request(profile, episode, verdict)
        ((_, guidance),) = write_guidance(writer, {0: request}).items()
        assert guidance.choice is not None, "the template always chooses"
        reason = domain_of(profile.name).sentences.render(guidance.choice, episode.episode_id)
        text = {"type": "text", "text": analyzer_text(profile, episode, log="actions")}
        rows.append(
            {
                "prompt": [{"role": "user", "content": [{"type": "image"}, text]}],
                "completion": _answer(build_target(verdict.pivot_step, verdict.failure_mode, reason)),
                "images": [Image.fromarray(collage([np.asarray(frame, np.uint8) for frame in frames]))],
                "pivot_step": verdict.pivot_step,
                "failure_mode": verdict.failure_mode,
                "index": index,
            }
        )
    return rows


def _drawn(env: Any, trajectory: Mapping[str, Any], actions: Sequence[Any]) -> list[Any]:
    """Return the picture before each action of a replay; none where the environment draws none."""
    frames: list[Any] = []
    for _ in _played(env, trajectory, actions[:-1]):
        try:
            frame = env.render()
        except NotImplementedError:
            return []
        if not isinstance(frame, np.ndarray):
            return []
        frames.append(frame.copy())
    return frames


def _turns(
    verdicts: Iterable[Verdict | Unsolved],
    trajectories: Iterable[Mapping[str, Any]],
    prompt: Prompt,
    make_env: Any,
    actions_by_name: Mapping[str, Any] | None,
) -> Iterator[tuple[Row, Verdict, Mapping[str, Any], list[str]]]:
    """Yield the turns of the plan of each labelled failure with prompt and action, and the names of its actions."""
    for index, verdict, trajectory, env, named, names in _labelled(verdicts, trajectories, make_env, actions_by_name):
        if not verdict.witness:
            continue
        pivot, recorded = verdict.pivot_step, list(trajectory.get("observations", ()))
        if env is None and len(recorded) <= pivot:
            raise CertifyError(
                f"observations: found {len(recorded)}, expected one before each action; record them, or pass make_env"
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


def _labelled(
    verdicts: Iterable[Verdict | Unsolved],
    trajectories: Iterable[Mapping[str, Any]],
    make_env: Any,
    actions_by_name: Mapping[str, Any] | None,
) -> Iterator[tuple[int, Verdict, Mapping[str, Any], Any, dict[str, Any], list[str]]]:
    """Yield each labelled failure: index, label, episode, environment, actions by name, and names of its actions."""
    answers, played = [*verdicts], read_trajectories(trajectories)
    if len(answers) != len(played):
        raise CertifyError(f"verdicts: found {len(answers)} for {len(played)} trajectories, expected one for each")
    if not any(isinstance(each, Verdict) for each in answers) and answers:
        warnings.warn(f"no episode has a label, so there are no rows; the first: {answers[0]}", stacklevel=4)
    for index, (verdict, trajectory) in enumerate(zip(answers, played, strict=True)):
        if not isinstance(verdict, Verdict):
            continue
        env = None if make_env is None else made(make_env, trajectory)
        named = dict(actions_by_name or {}) if env is None else members(env, actions_by_name)
        if not named and not all(isinstance(action, str) for action in trajectory["actions"]):
            raise CertifyError("actions: found numbers without names; pass actions_by_name, or make_env")
        names = [name_of(named, action) for action in trajectory["actions"]]
        if isinstance(verdict, OwnVerdict) and verdict.actions != tuple(names):
            raise CertifyError(
                f"verdicts[{index}]: found the label of the actions {shown(verdict.actions)}, expected "
                f"{shown(tuple(names))}; pass trajectories in the order of the labels, and the same actions_by_name"
            )
        yield index, verdict, trajectory, env, named, names


def _replayed(env: Any, trajectory: Mapping[str, Any], actions: Sequence[Any], recorded: list[Any]) -> list[Any]:
    """Return the observations of a replay; those recorded if they are of another kind, such as pictures.

    Raises:
        CertifyError: a recorded observation differs from that of the replay.
    """
    seen = [deepcopy(each) for each in _played(env, trajectory, actions)]
    equal = [is_equal(*each) for each in zip(recorded, seen, strict=False)]
    if False in equal:
        raise CertifyError(
            f"observations[{equal.index(False)}]: found another one than that of a replay; pass the seed, the options "
            "and the settings of the recorded episode"
        )
    return recorded if None in equal else seen


def _played(env: Any, trajectory: Mapping[str, Any], actions: Sequence[Any]) -> Iterator[Any]:
    """Yield the observations of a replay; None and an illegal action are turns without an action."""
    seen, info = env.reset(seed=trajectory.get("seed"), options=trajectory.get("options"))
    yield seen
    for action in actions:
        if action is not None and (allowed(env.action_space, [action], info) or (True,))[0]:
            with suppress(Exception):  # raised by an illegal action, which changes nothing
                seen, _, _, _, info = env.step(own(action))
        yield seen


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
