"""``pivot.pairs`` and ``pivot.corrections``: rows for a trainer from verdicts and trajectories, in memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import CertifyError
from ...rollouts.dialect import Dialect
from ...rollouts.replies import Said, Writer
from ...solvers.base import Unsolved, Verdict
from ...solvers.cases import read_trajectories
from ...solvers.closure.actions import members
from ...solvers.closure.batch import made
from ...solvers.closure.certified import name_of

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
            ``make_env`` plays them again. ``replies`` has what the agent said; without it both sides are ``reply``.
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
        CertifyError: there are more verdicts than trajectories or fewer, or observations are missing.
    """
    rows: list[Row] = []
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
                continue
            chosen = written.text
        sides = {"chosen": _answer(chosen), "rejected": _answer(rejected)}
        facts = {"chosen_action": safe, "rejected_action": fatal, "failure_mode": verdict.failure_mode}
        rows.append({**row, **sides, **facts})
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
    for index, (verdict, trajectory) in enumerate(zip(answers, played, strict=True)):
        if not isinstance(verdict, Verdict) or not verdict.witness:
            continue
        env = None if make_env is None else made(make_env, trajectory)
        named = dict(actions_by_name or {}) if env is None else members(env, actions_by_name)
        names, pivot = [name_of(named, action) for action in trajectory["actions"]], verdict.pivot_step
        taken, seen = [*names[:pivot], *verdict.witness], list(trajectory.get("observations", ()))[: pivot + 1]
        if env is not None:
            seen = [env.reset(seed=trajectory.get("seed"), options=trajectory.get("options"))[0]]
            for name in taken[:-1]:  # a turn whose word is not an action counts as a turn without an action
                seen.append(env.step(named[name])[0] if name in named else seen[-1])
        elif len(seen) <= pivot:
            raise CertifyError(
                f"observations: found {len(seen)}, expected one before each action; record them, or pass make_env"
            )
        for t, action in enumerate(taken[pivot : len(seen)], pivot):
            cells = _prompt_cells(prompt(seen[t], [*zip(seen[:t], taken[:t], strict=True)]))
            yield {**cells, "action": action, "t": t, "index": index}, verdict, trajectory, names


def _prompt_cells(messages: Any) -> Row:
    """Return a text or chat messages as the column ``prompt``, with their pictures in the column ``images``."""
    if isinstance(messages, str):
        return {"prompt": [{"role": "user", "content": messages}]}
    images, bare = list[Any](), list[Row]()
    for message in messages:
        parts: Any = message["content"]
        if not isinstance(parts, str):
            images += [part["image"] for part in parts if part.get("type") == "image"]
            parts = [{"type": "image"} if part.get("type") == "image" else part for part in parts]
        bare.append({**message, "content": parts})
    return {"prompt": bare, **({"images": images} if images else {})}


def _answer(text: str) -> list[Row]:
    return [{"role": "assistant", "content": text}]
