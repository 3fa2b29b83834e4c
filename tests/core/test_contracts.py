"""Wrong answers of plugins: each gives one message with field, value, expectation and entry point."""

import asyncio
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from pivot.core import plugins
from pivot.core.contracts import Contract, Terms
from pivot.core.errors import PluginError
from pivot.core.plugins import GROUPS, Settings
from pivot.core.storage import FileRecord
from pivot.core.storage.base import Stat, Storage, Url
from pivot.datasets.export.base import Exporter
from pivot.environments.base import NO_FRAME, EnvConfig, ParsedAction, PivotEnv, Task
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.environments.turns import Player, PlayerHabits, Reply, StudentPrompt
from pivot.flows.engines.base import Engine
from pivot.labeling.base import Filter, Guidance, GuidanceWriter, Objection
from pivot.labeling.domains import Domain
from pivot.labeling.statements import Choice, statement
from pivot.models.base import Backend, ChatAnswer, ChatModel, ModelOptions
from pivot.rollouts.base import Policy
from pivot.solvers.base import Case, Certificate, ExactSolver, Proof, Prover, Unsolved, Verdict


class Spiteful:
    def __repr__(self) -> str:
        raise RuntimeError("no repr\x1b[31m")


WRONG: list[Any] = [
    *(None, True, 0, -1, 10**60, 1.5, float("nan"), float("inf"), 1j, Decimal(1), np.int64(1), np.float32(0.5)),
    *("", "x", "no such word", "\x1b[31mred", "\ud800", "long " * 5000, b"", b"x", bytearray(b"x"), memoryview(b"x")),
    *((), ("x",), (1,), (None,), (object(),), [], ["x"], [1], [None], [[]], {}, {"a": 1}, {1: 2}, {"a": object()}),
    *(set(), frozenset(), range(3), iter(()), object(), Spiteful(), int, print, ..., ValueError("x"), Path("x")),
    *(np.zeros(2), np.zeros((2, 2, 3)), timedelta(1)),
]
"""Values that are wrong in almost every place; the cases below list the places in which they are valid."""

CASE = Case("A.G", ("left", "left"), 2)
FACTS = Certificate("exact", "moves", 2, 1, 1.0, None, reachable_after=False)
VERDICT = Verdict(0, "fell", FACTS, witness=("right",), feasible_actions=("right",))
TASK = Task("toy-1", 1, "A.G", "Walk.")
FRAME = np.zeros((2, 2, 3), np.uint8)
PROFILE = replace(FrozenLakeEnv.profile, name="toy", info_keys=("health",))


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_stored_text(value: Any) -> bool:
    return isinstance(value, str) and value != "\ud800"


def is_int(value: Any) -> bool:
    return type(value) is int


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < float("inf")


def is_json(value: Any) -> bool:
    return type(value) is dict and value in ({}, {"a": 1}, {1: 2})


def either(*right: Any) -> Callable[[Any], bool]:
    return lambda value: any(type(value) is type(each) and value == each for each in right)


def is_words(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(is_text, value))


def optional(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or right(value)


def never(value: Any) -> bool:
    return False


class Slot(NamedTuple):
    """One place of an answer: how to set it, and which of the wrong values are valid there."""

    group: str
    method: str
    field: str
    put: Callable[[Any], Any]
    right: Callable[[Any], bool]
    arguments: tuple[Any, ...] = ()


def whole(group: str, method: str, right: Callable[[Any], bool] = never, *arguments: Any) -> Slot:
    return Slot(group, method, "", lambda value: value, right, arguments)


def within(
    group: str, method: str, good: Any, right: Mapping[str, Callable[[Any], bool]], *arguments: Any
) -> list[Slot]:
    """Return a slot for every field of a dataclass."""
    return [
        Slot(group, method, name, lambda value, name=name: replace(good, **{name: value}), fits, arguments)
        for name, fits in right.items()
    ]


def chosen(name: str, value: Any) -> Guidance:
    return Guidance(choice=replace(Choice((), 0), **{name: value}))


def of_verdict(change: Callable[[Any], Verdict | Unsolved], name: str, right: Callable[[Any], bool]) -> Slot:
    return Slot("solvers", "certify", f"[0].{name}", lambda value: [change(value)], right, ([CASE],))


VERDICT_FIELDS: dict[str, Callable[[Any], bool]] = {
    "pivot_step": lambda value: type(value) is int and 0 <= value < 2,
    "failure_mode": never,
    "certificate": never,
    "secondary_modes": either(()),
    "fallback": lambda value: value is True,
    "infeasible_at_start": lambda value: value is True,
    "witness": either(None, ()),
    "feasible_actions": either(()),
    "pivot_action": either(None),
}
CERTIFICATE_FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("kind", "unit"), never),
    **dict.fromkeys(("budget_before", "budget_after"), is_int),
    **dict.fromkeys(("before", "after", "raw_before", "raw_after"), optional(is_number)),
    **dict.fromkeys(("reference_before", "reference_after"), optional(is_number)),
    "reachable_after": lambda value: value is None or value is True,
    "reference_pivot": optional(is_int),
    "reference_kind": optional(is_text),
}
REPLY_FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("text", "finish_reason"), is_text),
    "token_ids": lambda value: value is None or (isinstance(value, tuple) and all(map(is_int, value))),
    "logprobs": lambda value: value is None or (isinstance(value, tuple) and all(map(is_number, value))),
    "call": lambda value: isinstance(value, dict) and all(map(is_text, value)),
}


def step(index: int, right: Callable[[Any], bool]) -> Slot:
    good = (FRAME, 0.0, False, False, {"success": False})
    return Slot("environments", "step", f"[{index}]", lambda v: (*good[:index], v, *good[index + 1 :]), right, (0,))


def info(key: str, right: Callable[[Any], bool]) -> Slot:
    put: Callable[[Any], Any] = lambda value: (FRAME, 0.0, False, False, {"success": False} | {key: value})  # noqa: E731
    return Slot("environments", "step", f"[4]['{key}']", put, right, (0,))


def is_flag(value: Any) -> bool:
    return value is True


def is_measure(value: Any) -> bool:
    return value is None or type(value) in (int, float, np.int64, np.float32)


SLOTS: list[Slot] = [
    *(whole("environments", name, is_stored_text, "A.G") for name in ("canonical_state", "describe_state")),
    *(whole("environments", name, is_stored_text) for name in ("state_text", "changing_state")),
    whole("environments", "make_task", never, None, 1),
    whole("environments", "make_level", never, None, 1),
    whole("environments", "fixed_tasks", either(None, ()), None),
    *within(
        *("environments", "make_task", TASK),
        dict.fromkeys(("task_id", "initial_state", "instruction", "eval_set"), is_text),
        *(None, 1),
    ),
    *within("environments", "make_task", TASK, {"seed": is_int, "goal_idx": is_int}, None, 1),
    whole("environments", "parse_action", lambda value: value is None, "left"),
    *within("environments", "parse_action", ParsedAction("left"), {"name": is_text, "payload": optional(is_text)}, "x"),
    whole("environments", "snapshot", lambda value: isinstance(value, bytes)),
    *(whole("environments", name, never, b"") for name in ("reset", "step", "restore", "encode_frame")),
    whole("environments", "render"),
    whole("environments", "success_return", is_number),
    step(0, never),
    step(1, lambda value: is_number(value) or type(value) in (np.int64, np.float32)),
    *(step(index, is_flag) for index in (2, 3)),
    step(4, never),
    *(info(key, is_flag) for key in ("success", "last_action_success", "legal")),
    info("moved", optional(is_flag)),
    info("remaining_turns", lambda value: is_int(value) or type(value) is np.int64),
    *(info(key, is_measure) for key in ("dist", "average_score")),
    info("observation_text", is_stored_text),
    info("submission_outcome", optional(is_text)),
    info("health", lambda value: is_measure(value) or is_text(value) or value is True),
    info("undeclared", never),
    whole("solvers", "certify", never, [CASE]),
    *(of_verdict(lambda v, n=name: replace(VERDICT, **{n: v}), name, fits) for name, fits in VERDICT_FIELDS.items()),
    *(
        of_verdict(lambda v, n=n: replace(VERDICT, certificate=replace(FACTS, **{n: v})), f"certificate.{n}", fits)
        for n, fits in CERTIFICATE_FIELDS.items()
    ),
    of_verdict(lambda value: Unsolved(value, ""), "reason", never),
    of_verdict(lambda value: Unsolved("bad_episode", value), "detail", is_text),
    whole("solvers", "needed", optional(is_number), 1.0),
    whole("solvers", "needs", either(None, [], (), [1], [None], (1,), (None,)), CASE),
    whole("solvers", "config", is_json),
    whole("solvers", "distance_map", never, "A.G"),
    whole("provers", "prove", never, CASE, VERDICT),
    *within("provers", "prove", Proof(), {"problems": is_words, "undecided": optional(is_text)}, CASE, VERDICT),
    whole("policies", "reply", never, None),
    *within("policies", "reply", Reply("x"), REPLY_FIELDS, None),
    *(whole("policies", name, is_json, *arguments) for name, arguments in (("config", ()), ("config_for", ("toy",)))),
    whole("players", "reply", never, None),
    *within("players", "reply", Reply("x"), REPLY_FIELDS, None),
    whole("prompts", "render", either(())),
    Slot("prompts", "render", "[0]", lambda value: (value,), never),
    Slot("prompts", "render", "[0]", lambda value: ({"role": "user", "content": value},), is_stored_text),
    Slot("prompts", "render", "[0]", lambda value: ({"role": value, "content": "x"},), is_stored_text),
    whole("domains", "meaning", is_text, "fell"),
    whole("domains", "background", either([], ["x"]), None, 0),
    *(whole("domains", name, either([]), None) for name in ("signs", "facts", "actions")),
    whole("domains", "contradiction", optional(is_text), None, ""),
    whole("writers", "write", never, [None]),
    Slot("writers", "write", "[0]", lambda value: [value], never, ([None],)),
    Slot("writers", "write", "[0].text", lambda value: [Guidance(value)], is_text, ([None],)),
    Slot("writers", "write", "[0].problem", lambda v: [Guidance("", v)], lambda v: v is None, ([None],)),
    Slot("writers", "write", "[0].calls", lambda v: [Guidance(calls=v)], either(()), ([None],)),
    *(
        Slot("writers", "write", f"[0].{name}", lambda v, name=name: [Guidance(**{name: v})], right, ([None],))
        for name, right in {"choice": optional(never), "prompt": optional(never), "rendered": optional(is_text)}.items()
    ),
    *(
        Slot("writers", "write", f"[0].choice.{name}", lambda v, name=name: [chosen(name, v)], right, ([None],))
        for name, right in {"wording": is_int, "statements": either(())}.items()
    ),
    whole("writers", "prompt", lambda value: value is None, None),
    whole("writers", "config", is_json),
    whole("filters", "check", lambda value: value is None, None, None),
    *within("filters", "check", Objection("odd", "x"), {"kind": either("x"), "detail": is_text}, None, None),
    whole("models", "config", is_json),
    whole("models", "in_flight", lambda value: type(value) is int and value > 0),
    whole("models", "connect"),
    whole("chat", "answer", never, None),
    *within(
        "chat", "answer", ChatAnswer("x"), REPLY_FIELDS | {"refusal": optional(is_text), "tokens": optional(is_words)}
    ),
    whole("chat", "served_as", optional(is_text)),
    whole("exporters", "tables", lambda value: type(value) is dict and not value, None),
    whole("exporters", "file", is_text, None, None, "train"),
    *(whole("storages", name, is_text) for name in ("address", "folder_id")),
    whole("storages", "exists", lambda value: isinstance(value, bool)),
    whole("storages", "entries", either([], ["x"])),
    whole("storages", "listing", lambda value: type(value) is dict and not value),
    *(whole("storages", name, optional(never), "x") for name in ("stat", "cached_stat")),
    *within("storages", "stat", Stat(1, "x"), {"bytes": is_int, "changed": is_text}, "x"),
    whole("storages", "record", never, "x"),
    *within("storages", "record", FileRecord("x", 1), {"sha256": is_text, "bytes": is_int}, "x"),
    whole("storages", "writer", optional(is_text)),
    whole("engines", "pool", lambda value: isinstance(value, (memoryview, Path)), (), None),
]


class ToySettings(EnvConfig):
    horizon: int = 2


NEEDED: dict[str, dict[str, Any]] = {
    "environments": {"config_type": ToySettings, "profile": PROFILE},
    "solvers": {
        **{"name": "toy", "version": "1", "kind": "exact", "unit": "moves"},
        **{"modes": ("fell", "timeout"), "actions": ("left", "right")},
    },
    "policies": {"name": "toy"},
    "players": {"config_type": PlayerHabits},
    "prompts": {"template": "student.toy", "version": "1"},
    "writers": {"name": "toy"},
    "filters": {"name": "toy"},
    "storages": {"__init__": lambda self, url: None},
    "models": {"name": "toy", "config_type": ModelOptions, "service_type": Settings},
}
CONTRACTS: dict[str, type[Contract]] = {
    **{"environments": PivotEnv, "solvers": ExactSolver, "provers": Prover, "policies": Policy, "players": Player},
    **{"prompts": StudentPrompt, "domains": Domain, "writers": GuidanceWriter, "filters": Filter, "models": Backend},
    **{"chat": ChatModel, "engines": Engine, "exporters": Exporter, "storages": Storage},
}
MADE_WITH: dict[str, tuple[Any, ...]] = {
    "storages": (Url("toy://bucket"),),
    "models": (ModelOptions(model="m"), None, "student"),
    "players": ("toy", {}),
}


def toy(group: str, plant: Callable[[str], Any]) -> Any:
    """Make a class of a foreign package whose methods return ``plant``'s values; an object for prompts."""
    contract = CONTRACTS[group]
    names = {name for base in contract.__mro__ if isinstance(t := vars(base).get("terms"), Terms) for name in t.answers}
    members: dict[str, Any] = {"__module__": "toys", "config_type": Settings, **NEEDED.get(group, {})}
    for name in sorted({*names, *getattr(contract, "__abstractmethods__", ()), "encode_action"} - {"default_habits"}):
        members[name] = _method(name, inspect.getattr_static(contract, name, None), plant)
    return types.new_class("Toy", (contract,), exec_body=lambda body: body.update(members))


def _method(name: str, of_contract: Any, plant: Callable[[str], Any]) -> Any:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return plant(name)

    async def coroutine(self: Any, *arguments: Any, **named: Any) -> Any:
        return plant(name)

    if inspect.iscoroutinefunction(of_contract):
        return coroutine
    wrap = {classmethod: classmethod, property: property}.get(type(of_contract), lambda function: function)
    return wrap(method)


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Any], Any]]:
    """Register an object as the plugin ``toy`` of a group and return what loading it gives."""
    module = SimpleNamespace()

    def load(group: str, part: Any) -> Any:
        if group == "chat":
            return part
        point = EntryPoint("toy", "toys:Toy", f"pivot.{group}")
        vars(point)["dist"] = SimpleNamespace(name="toy-dist")
        module.Toy = part() if group in ("prompts", "domains") else part
        monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == point.group else [])
        plugins.registered.cache_clear()
        plugins.load.cache_clear()
        return plugins.load(group, "toy")

    monkeypatch.setitem(__import__("sys").modules, "toys", module)
    yield load
    plugins.registered.cache_clear()
    plugins.load.cache_clear()


def ask(part: Any, slot: Slot) -> Any:
    made = part(*MADE_WITH.get(slot.group, ())) if isinstance(part, type) else part
    answer = getattr(made, slot.method)
    answer = answer(*slot.arguments) if callable(answer) and slot.method != "config" else answer
    return asyncio.run(answer) if inspect.iscoroutine(answer) else answer


def named(slot: Slot) -> str:
    return f"{slot.group}-{slot.method}{'.' * bool(slot.field)}{slot.field}"


@pytest.mark.parametrize("slot", SLOTS, ids=named)
def test_a_wrong_answer_is_one_message(slot: Slot, register: Callable[[str, Any], Any]) -> None:
    planted: list[Any] = [None]
    part = register(slot.group, toy(slot.group, lambda name: planted[0]))
    refused = 0
    for value in WRONG:
        if slot.right(value):
            continue
        planted[0] = slot.put(value)
        with pytest.raises(PluginError) as caught:
            ask(part, slot)
            pytest.fail(f"{value!r} was taken")
        message = str(caught.value)
        if slot.group != "chat":
            assert message.startswith(f"{GROUPS[slot.group].member} 'toy' (toys:Toy, from toy-dist) answered ")
        assert f"{slot.method}(){slot.field if slot.field.startswith('[') else ''}" in message
        assert slot.field in message and " = " in message
        assert ", expected " in message and message.isprintable() and len(message) < 500
        refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("slot", "answer"),
    [
        (whole("environments", "step", never, 0), (NO_FRAME, np.float32(1), np.bool_(True), False, {"success": True})),
        (whole("environments", "reset"), (FRAME, {"health": np.int64(3), "observation_text": "é"})),
        (whole("environments", "frame_key"), ("a", 1)),
        (whole("solvers", "certify", never, [CASE]), [VERDICT]),
        (whole("solvers", "certify", never, [CASE]), [Unsolved("solver_limit", "too large")]),
        (whole("prompts", "render"), ({"role": "user", "content": [{"type": "image", "frame_id": "f"}]},)),
        (whole("domains", "facts", never, None), [statement("fell", step=3)]),
        (whole("engines", "pool", never, (), None), nullcontext()),
    ],
    ids=lambda each: named(each) if isinstance(each, Slot) else "",
)
def test_a_right_answer_is_taken(slot: Slot, answer: Any, register: Callable[[str, Any], Any]) -> None:
    assert ask(register(slot.group, toy(slot.group, lambda name: answer)), slot) is answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([replace(VERDICT, witness=tuple("left"))], "certify()[0].witness = 'l', expected one of left, right"),
        ([VERDICT, VERDICT], "expected 1 answers, one per case"),
    ],
)
def test_the_message_says_what_is_wrong(answer: Any, said: str, register: Callable[[str, Any], Any]) -> None:
    part = register("solvers", toy("solvers", lambda name: answer))
    with pytest.raises(PluginError) as caught:
        part().certify([CASE])
    assert said in str(caught.value)


@pytest.mark.parametrize("group", sorted(CONTRACTS.keys() - {"chat"}))
def test_an_exit_is_an_error_of_the_plugin(group: str, register: Callable[[str, Any], Any]) -> None:
    def leave(name: str) -> Any:
        raise SystemExit(3)

    part = register(group, toy(group, leave))
    slot = next(slot for slot in SLOTS if slot.group == group)
    with pytest.raises(PluginError, match=r"'toy' \(toys:Toy, from toy-dist\) called sys.exit\(3\) in "):
        ask(part, slot)


def test_an_interrupt_of_the_user_is_left_alone(register: Callable[[str, Any], Any]) -> None:
    def interrupt(name: str) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        register("solvers", toy("solvers", interrupt))().certify([CASE])


def test_our_own_classes_are_not_wrapped() -> None:
    assert not hasattr(FrozenLakeEnv.step, "__wrapped__")


@pytest.mark.parametrize(
    ("group", "changes", "problem"),
    [
        ("provers", {"__init__": lambda self, settings: None}, "its constructor cannot take 2 positional arguments"),
        ("solvers", {"modes": ("Falls Down",)}, "its failure mode 'Falls Down' is invalid"),
        ("solvers", {"unit": "parsecs"}, "its unit is 'parsecs', expected one of 'moves', 'turns', 'stages' or"),
        ("solvers", {"config_type": dict}, "its config_type is <class 'dict'>"),
        ("environments", {"profile": replace(PROFILE, failure_modes=("time-out",))}, "its failure mode 'time-out' is"),
        ("solvers", {"actions": ["left"]}, "its actions is ['left'], expected a tuple"),
        ("filters", {"judges_text": "yes"}, "its judges_text is 'yes', expected True or False"),
        ("filters", {"environments": {"sokoban"}}, "its environments is {'sokoban'}, expected a frozenset"),
        ("environments", {"profile": replace(PROFILE, reply_limit="1")}, "its profile.reply_limit is '1', expected"),
        ("environments", {"profile": replace(PROFILE, log_fields=("hp",))}, "its profile.log_fields names 'hp'"),
        ("environments", {"profile": replace(PROFILE, info_keys=("dist",))}, "its profile.info_keys names 'dist'"),
        ("prompts", {"version": 1}, "its version is 1, expected a text"),
    ],
)
def test_attributes_are_checked_at_the_door(
    group: str, changes: dict[str, Any], problem: str, register: Callable[[str, Any], Any]
) -> None:
    part = toy(group, lambda name: None)
    with pytest.raises(PluginError) as caught:
        register(group, type(part)("Odd", (part,), {"__module__": "toys", **changes}))
    assert problem in str(caught.value)


@pytest.mark.parametrize("group", sorted(CONTRACTS.keys() - {"chat", "prompts", "domains"}))
def test_a_constructor_that_takes_no_settings_is_refused_at_the_door(
    group: str, register: Callable[[str, Any], Any]
) -> None:
    part = toy(group, lambda name: None)
    with pytest.raises(PluginError, match=r"its constructor cannot take [1-3] positional argument"):
        register(group, type(part)("Odd", (part,), {"__module__": "toys", "__init__": lambda self: None}))
