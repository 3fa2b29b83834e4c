"""``pivot.pairs`` and ``pivot.corrections``: rows for a trainer from verdicts and trajectories, in memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import CertifyError
from ...rollouts.dialect import Dialect
from ...rollouts.replies import Said, Writer
from ...solvers.base import Unsolved, Verdict
from ...solvers.cases import read_trajectories
from ...solvers.closure.actions import members
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
        the actions, ``t``, ``failure_mode`` and ``index``, the place of the trajectory.
        ``datasets.Dataset.from_list`` makes a dataset of them.

    Raises:
        CertifyError: there are more verdicts than trajectories or fewer, or observations are missing.
    """
    rows: list[Row] = []
    for index, verdict, play in _failures(verdicts, trajectories, make_env, actions_by_name):
        t, fatal, safe = verdict.pivot_step, play.names[verdict.pivot_step], (verdict.witness or ("",))[0]
        if verdict.fallback or fatal in verdict.feasible_actions:
            continue
        said = play.trajectory.get("replies")
        chosen, rejected = reply(safe), reply(fatal) if said is None else str(said[t])
        if said is not None:
            writer = Writer(Dialect(), "action", sorted({*verdict.feasible_actions, *play.names, safe}))
            thought = f"The goal takes {verdict.certificate.before:g} turns from here. The next action is {safe}."
            written = writer.written(safe, Said(rejected), fatal, thought)
            if written is None:
                continue
            chosen = written.text
        answers = {"chosen": _answer(chosen), "rejected": _answer(rejected)}
        facts = {"chosen_action": safe, "rejected_action": fatal, "failure_mode": verdict.failure_mode}
        rows.append({**play.asked(prompt, t), **answers, **facts, "t": t, "index": index})
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
    rows: list[Row] = []
    for index, verdict, failed in _failures(verdicts, trajectories, make_env, actions_by_name):
        pivot, plan = verdict.pivot_step, verdict.witness or ()
        play = failed.with_plan(pivot, plan)
        for place, action in enumerate(plan if make_env is not None else plan[:1]):
            cells = {"completion": _answer(reply(action)), "action": action, "need": len(plan) - place}
            rows.append({**play.asked(prompt, pivot + place), **cells, "t": pivot + place, "index": index})
    return rows


class _Play:
    """One trajectory with the names of its actions, and what was seen before each."""

    def __init__(self, trajectory: Mapping[str, Any], make_env: Any, named: Mapping[str, Any] | None) -> None:
        self.trajectory, self._make, self._declared = trajectory, make_env, named
        self._env = None if make_env is None else self._made()
        self._named = dict(named or {}) if self._env is None else members(self._env, named)
        self.names = [name_of(self._named, action) for action in trajectory["actions"]]
        self._seen: list[Any] = list(trajectory.get("observations", ()))

    def _made(self) -> Any:
        return self._make(self.trajectory["level"]) if "level" in self.trajectory else self._make()

    def with_plan(self, pivot: int, plan: Sequence[str]) -> "_Play":
        """Return the play with a plan from a step on; what it sees is played."""
        if self._env is None:
            return self
        other = _Play({**self.trajectory, "actions": [*self.names[:pivot], *plan]}, self._make, self._declared)
        other._seen = []
        return other

    def asked(self, prompt: Prompt, t: int) -> Row:
        """Return the cells of the prompt before a step."""
        if len(self._seen) <= t:
            self._play()
        if len(self._seen) <= t:
            raise CertifyError(
                f"observations: found {len(self._seen)}, expected one before each action; record them, or pass make_env"
            )
        asked, images = prompt(self._seen[t], [*zip(self._seen[:t], self.names[:t], strict=True)]), list[Any]()
        if isinstance(asked, str):
            return {"prompt": [{"role": "user", "content": asked}]}
        messages: list[Row] = []
        for message in asked:
            parts: Any = message["content"]
            if not isinstance(parts, str):
                images += [part["image"] for part in parts if part.get("type") == "image"]
                parts = [{"type": "image"} if part.get("type") == "image" else part for part in parts]
            messages.append({**message, "content": parts})
        return {"prompt": messages, **({"images": images} if images else {})}

    def _play(self) -> None:
        if self._env is None:
            return
        start = {"seed": self.trajectory.get("seed"), "options": self.trajectory.get("options")}
        self._seen = [self._env.reset(**start)[0]]
        for name in self.names[:-1]:
            is_move = name in self._named  # any other word is a turn without an action
            self._seen.append(self._env.step(self._named[name])[0] if is_move else self._seen[-1])


def _failures(
    verdicts: Iterable[Verdict | Unsolved],
    trajectories: Iterable[Mapping[str, Any]],
    make_env: Any,
    named: Mapping[str, Any] | None,
) -> Iterator[tuple[int, Verdict, _Play]]:
    """Yield the labelled failures that a plan could have won, with their index."""
    listed, played = [*verdicts], read_trajectories(trajectories)
    if len(listed) != len(played):
        raise CertifyError(f"verdicts: found {len(listed)} for {len(played)} trajectories, expected one for each")
    for index, (verdict, trajectory) in enumerate(zip(listed, played, strict=True)):
        if isinstance(verdict, Verdict) and verdict.witness:
            yield index, verdict, _Play(trajectory, make_env, named)


def _answer(text: str) -> list[Row]:
    return [{"role": "assistant", "content": text}]
