"""The audit of a source: no label rests on a misreading, and the printed remedy imports what was left out."""

import json
import random
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pivot
import pytest
from pivot.core.progress import Reporter
from pivot.environments.gym import GymConfig, GymEnv
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.environments.svg import SvgConfig, SvgEnv
from pivot.interop.levels import slots_of
from pivot.interop.reading import Reading
from pivot.interop.run import REQUIRED
from pivot.rollouts.confirm import confirm
from pivot.tests.stores import problems

from .dialects import AMBIGUOUS, HORIZON, REPLIES, WORDS, Chats, write_chats
from .recorded import LEVEL, SETTINGS, episode, imports_of, write_lines

FIRST, SECOND = ["down", "right", "right", "up", "left"], ["right", "left", "down", "up", "down"]
"""Failures of ``LEVEL`` with a horizon of 5, whose pivots are 2 and 2."""
OWN = {"env": "sokoban", "env_config": {**SETTINGS, "horizon": 5}, "initial_state": LEVEL, "success": False}


def _chat(replies: Sequence[Any], first: str = "Now?", **fields: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for reply in replies:
        said = reply if isinstance(reply, dict) else {"content": reply}
        messages += [{"role": "user", "content": "Now?" if messages else first}, {"role": "assistant", **said}]
    return {"messages": messages, **OWN, **fields}


def _tagged(actions: Sequence[str]) -> list[str]:
    return [f"<action>{action}</action>" for action in actions]


def _write(folder: Path, *rows: Any) -> Path:
    return write_lines(folder, *rows) / "episodes.jsonl"


def _read(source: Path, format: str = "openai", **options: Any) -> Reading:
    reading = Reading(source, format, {}, REQUIRED, options)
    reading.run(Reporter())
    return reading


def _room(level: str = LEVEL) -> SokobanEnv:
    env = SokobanEnv(SokobanConfig(**{**SETTINGS, "horizon": 5}))
    env.reset(options={"state": level})
    return env


def _moves(reading: Reading) -> list[list[str]]:
    """Return the actions that are read in each episode."""
    (plan,) = reading.plans.values()
    slots = [slots_of(plan.env, reading.read(entry.taken.place)) for entry in plan.entries]
    return [[slot.action.name for slot in each if slot.action] for each in slots]


def _evidence(reading: Reading) -> list[list[str]]:
    return [[each.value for each in entry.evidence or ()] for entry in reading.plans["sokoban"].entries]


def _taken(reading: Reading) -> int:
    return sum(len(plan.entries) for plan in reading.plans.values())


def _options(remedy: str) -> dict[str, Any]:
    """Return the options of a remedy as a shell would pass them."""
    words = shlex.split(remedy[remedy.index("--option") :])
    pairs = [word.partition("=")[::2] for word in words if word != "--option"]
    return {name: int(value) if name == "actions_per_turn" else value for name, value in pairs}


def _wrong(reading: Reading, chats: Chats) -> int:
    """Return the number of failures whose label differs from the label of the played actions."""
    wrong = 0
    for plan in reading.plans.values():
        for entry in plan.entries:
            record = reading.read(entry.taken.place, entry.taken.masked)
            played, level = chats.played[int(record.id or "")]
            read = [slot.action.name if slot.action else "invalid" for slot in slots_of(plan.env, record)]
            if not record.success and read != played:
                one, two = (pivot.certify(chats.env, level, each, HORIZON) for each in (read, played))
                names = ("pivot_step", "failure_mode", "certificate")
                wrong += any(getattr(one, name) != getattr(two, name) for name in names)
    return wrong


def test_random_dialects_give_no_wrong_label(tmp_path: Path) -> None:
    """No dialect gives a wrong label; where its words are unambiguous, the remedy imports everything."""
    rng, seen = random.Random(7), Counter[str]()
    for number in range(10):
        env = rng.choice(["sokoban", "frozenlake"])
        shown = rng.choice(["", "", "picture", "board"])
        words, form, other = rng.choice([*WORDS]), rng.choice([*REPLIES]), rng.choice([*WORDS])
        mixed, unusable = number % 5 == 4, rng.choice([0.0, 0.2]) if shown else 0.0

        def dialect(index: int, *, own: str = words, second: str = other, mixed: bool = mixed, form: str = form) -> Any:
            return (second if mixed and index % 2 else own), form

        chats = write_chats(tmp_path / str(number), rng, env, dialect, shown=shown, unusable=unusable)
        reading = _read(chats.path)
        assert _wrong(reading, chats) == 0 or (words == "opposite" and not shown)
        remedies = [each for each in reading.remedies if each.options]
        if remedies:
            seen["remedies"] += 1
            again = _read(chats.path, **_options(remedies[-1].text))
            assert _wrong(again, chats) == 0
            seen["whole"] += _taken(again) == len(chats.played)
        elif not mixed and words not in AMBIGUOUS and not unusable:
            assert _taken(reading) == len(chats.played), (env, shown, words, form)
    assert seen["remedies"] >= 5 and seen["whole"] >= 5, seen


def test_words_that_a_sample_of_episodes_leaves_open_are_those_that_fit_all(tmp_path: Path) -> None:
    dialect = lambda _: ("unknown", "action")  # noqa: E731
    chats = write_chats(tmp_path, random.Random(1), "frozenlake", dialect, shown="board", episodes=16, even=FIRST[:2])
    again = _read(chats.path, **_options(_read(chats.path).remedies[-1].text))
    assert _taken(again) == 16 and _wrong(again, chats) == 0


@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
@pytest.mark.parametrize("shown", ["picture", "board", "symbols"])
def test_a_correct_source_with_unusable_replies_is_imported(tmp_path: Path, env: str, shown: str) -> None:
    dialect = lambda _: ("names", "action")  # noqa: E731
    chats = write_chats(tmp_path, random.Random(3), env, dialect, shown=shown, episodes=12, unusable=0.2)
    assert sum("invalid" in played for played, _ in chats.played) >= 6
    reading = _read(chats.path)
    assert _taken(reading) == 12 and _wrong(reading, chats) == 0


def _tool(**arguments: Any) -> dict[str, Any]:
    function = {"name": "move", "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"type": "function", "function": function}]}


MISREAD: dict[str, Any] = {
    "another tag": lambda action: f"<think>so</think><answer>{action}</answer>",
    "punctuation": lambda action: f"<action>{action.title()}.</action>",
    "arrows": lambda action: f"<action>{WORDS['arrows'][action]}</action>",
    "ReAct": lambda action: f"Thought: so.\nAction: {action}",
    "JSON": lambda action: json.dumps({"move": action, "why": "closer"}),
    "open thought": lambda action: f"<think>so <action>{action}</action>",
    "call of two arguments": lambda action: _tool(direction=action, steps=1),
    "function_call": lambda action: {"function_call": {"name": "go", "arguments": {"to": action, "n": 1}}},
    "label in Chinese": lambda action: f"思考：近。\n动作：{action}",
    "parentheses": lambda action: f"Action: 7 ({action})",
    "tool_use": lambda action: {"content": [{"type": "tool_use", "name": "go", "input": {"to": action, "n": 1}}]},
}


@pytest.mark.parametrize("name", MISREAD)
def test_a_misread_source_is_left_out_and_its_remedy_works(tmp_path: Path, name: str) -> None:
    rows = (_chat([MISREAD[name](each) for each in moves]) for moves in (FIRST, SECOND))
    reading = _read(source := _write(tmp_path, *rows))
    assert _taken(reading) == 0 and {each.kind for each in reading.problems} == {"unconfirmed"}
    again = _read(source, **_options(reading.remedies[-1].text))
    assert _moves(again) == [FIRST, SECOND] and _evidence(again) == [["read"]] * 2
    assert _taken(_read(source, dialect="auto")) == 2


@pytest.mark.parametrize(
    "form",
    [
        lambda moves: f"<answer>{''.join(move[0].upper() for move in moves)}</answer>",
        lambda moves: f"<answer>{''.join(WORDS['arrows'][move] for move in moves)}</answer>",
        lambda moves: f"<answer>{' then '.join(moves)}</answer>",
        lambda moves: "<plan>\n" + "\n".join(f"{n}. {move}" for n, move in enumerate(moves, 1)) + "\n</plan>",
        lambda moves: "Actions:\n" + "\n".join(moves),
    ],
)
def test_a_source_with_turns_of_two_actions_is_left_out_and_its_remedy_works(tmp_path: Path, form: Any) -> None:
    level = LEVEL.replace("@ $.", " @$.")
    config: dict[str, Any] = {"env_config": {**SETTINGS, "horizon": 3}}
    rows = [_chat([form(moves[n : n + 2]) for n in (0, 2, 4)], **config) for moves in (FIRST, SECOND)]
    rows += [_chat([form(["right"])], id=str(n), initial_state=level, success=True, **config) for n in range(3)]
    reading = _read(source := _write(tmp_path, *rows))
    assert _taken(reading) == 0
    again = _read(source, **_options(reading.remedies[-1].text))
    assert _moves(again)[:2] == [["down|right", "right|up", "left"], ["right|left", "down|up", "down"]]


WINS = ["right", "right"], ["down", "up", "right", "right"], ["up", "right", "right"]
EXAMPLES = (["up", "left"], ["down", "left"], ["up", "up"])


def _answers(words: Sequence[str]) -> list[str]:
    return [f"<think>so</think><answer>{word}</answer>" for word in words]


def _lines(turns: list[dict[str, Any]]) -> dict[str, Any]:
    return {"format": "pivot-episode-1", "turns": turns, **OWN}


def _shown(moves: Sequence[str]) -> dict[str, Any]:
    row = _chat(_answers(moves), f"The room:\n{LEVEL}")
    return {name: value for name, value in row.items() if name != "initial_state"}


ITALIAN = dict(zip(WORDS["names"], ["su", "giù", "sinistra", "destra"], strict=True))
FOREIGN: dict[str, Any] = {
    "Italian": lambda moves: _chat(_answers([ITALIAN[move] for move in moves])),
    "the answer is": lambda moves: _chat([f"It is near.\nThe answer is {move}." for move in moves]),
    "two directions": lambda moves: _chat([f"Going {moves[0]} is bad, so I choose: {move}" for move in moves]),
    "text after a mark": lambda moves: _chat([f"<|channel|>final<|message|>{move}" for move in moves]),
    "letters of another language": lambda moves: _chat(_answers(["OULR"["udlr".index(each[0])] for each in moves])),
    "level in the text": _shown,
    "pool of examples": lambda moves: _chat(_answers([*EXAMPLES[len(moves) % 3], *moves])),
    "actions after the end": lambda moves: _chat(_answers([*moves, "up"])),
    "last of two": lambda moves: _chat([f"<answer>left</answer> No: <answer>{each}</answer>" for each in moves]),
    "last of two lines": lambda moves: _chat([f"Action: left\nNo.\nAction: {each}" for each in moves]),
    "lines": lambda moves: _lines([{"response": each} for each in _answers(moves)]),
    "words of lines": lambda moves: _lines([{"actions": [ITALIAN[move]]} for move in moves]),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_the_remedy_of_a_foreign_dialect_reads_what_was_played(tmp_path: Path, name: str) -> None:
    played = [FIRST, SECOND, *WINS]
    rows = [{**FOREIGN[name](moves), "id": str(n), "success": n > 1} for n, moves in enumerate(played)]
    source, format = _write(tmp_path, *rows), "jsonl" if "format" in rows[0] else "openai"
    reading = _read(source, format)
    assert _taken(reading) == 0
    read = _moves(_read(source, format, **_options(reading.remedies[-1].text)))
    assert [moves[: len(own)] for moves, own in zip(read, played, strict=True)] == played


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([_chat(_answers([*EXAMPLES[0], *moves])) for moves in (FIRST, SECOND)], "examples=2"),
        ([_chat(_answers(("up, down", "left", "up", "up", "up")))], "actions_per_turn=N"),
        ([_chat([*_tagged(FIRST[:3]), *(f"Action: {each}" for each in FIRST[3:])])], "Action:"),
        ([_chat([*_answers(FIRST[:3]), *(f"Action: {each}" for each in FIRST[3:])])], "Action: alone, only if"),
        ([_chat([f"<answer>left</answer> No: <answer>{each}</answer>" for each in FIRST])], "container=last"),
        ([_chat([f"It is {move}, so I choose: {FIRST[0]}" for move in FIRST])], "the direction after 'choose'"),
        ([_chat(_answers("2013"))], "words=up:WORD"),
        (
            [_chat([f"<action>{each} x{m * n}</action>" for n, each in enumerate(FIRST, 1)]) for m in (1, 7)],
            "as lines of the format jsonl",
        ),
        ([_chat([f"Box: {move}\nMove: {len(move)}" for move in FIRST])], "words=up:WORD"),
    ],
)
def test_a_guess_that_nothing_proves_is_a_question(tmp_path: Path, rows: list[Any], said: str) -> None:
    reading = _read(_write(tmp_path, *rows))
    assert said in reading.remedies[-1].text and not reading.remedies[-1].options
    assert _taken(_read(tmp_path / "episodes.jsonl", dialect="auto")) == 0


def test_episodes_without_the_container_of_the_successes_are_not_labelled(tmp_path: Path) -> None:
    """Their replies may be unusable turns or actions: nothing proves which."""
    german = dict(zip(WORDS["names"], ["hoch", "runter", "links", "rechts"], strict=True))
    for tag, other, words in (("answer", "<move>{}</move>", {}), ("action", "Zug: {}", german)):
        replies = [*["I do not know."] * 3, *(f"<{tag}>{each}</{tag}>" for each in WINS[0])]
        won = [_chat(replies, id=str(n), success=True) for n in range(3)]
        lost = [_chat([other.format(words.get(each, each)) for each in moves]) for moves in (FIRST, SECOND)]
        assert _taken(_read(_write(tmp_path / tag, *won, *lost), dialect="auto")) == 3
        assert "only if" in _read(tmp_path / tag / "episodes.jsonl", tag=tag).remedies[-1].text


def test_a_source_that_is_read_gets_no_question(tmp_path: Path) -> None:
    rows = [_chat(_tagged(FIRST)), _chat([*_tagged(SECOND[:4]), {"content": "<action>up</action>", "move": "down"}])]
    reading = _read(_write(tmp_path, *rows, *(_chat(_tagged(["up", *SECOND[:4]]), id=str(n)) for n in range(9))))
    assert _taken(reading) == 0 and reading.remedies == []


LISTS = "--option tag=answer --option separator=,"


def test_replies_with_more_actions_than_the_prompt_allows_are_a_question(tmp_path: Path) -> None:
    replies = [f"<answer>{', '.join(FIRST[: n + 2])}</answer>" for n in range(4)]
    rows = [_chat(replies, "Use up to 3 actions at a time.", id=str(number)) for number in range(2)]
    text = _read(_write(tmp_path, *rows)).remedies[0].text
    for count in (3, 5):
        (option,) = re.findall(rf"({LISTS} --option actions_per_turn={count} .*?)(?:;|$)", text)
        assert _taken(_read(tmp_path / "episodes.jsonl", **_options(option))) == 2


def test_a_prompt_limits_actions_that_would_end_the_episode_too_early(tmp_path: Path) -> None:
    replies = ["<answer>up, left, right, right</answer>", "<answer>left, up, down</answer>", "<answer>up</answer>"]
    text = _read(_write(tmp_path, _chat(replies, "Use up to 2 actions at a time."))).remedies[0].text
    (option,) = re.findall(rf"({LISTS} --option actions_per_turn=2 .*?)(?:;|$)", text)
    assert _taken(_read(tmp_path / "episodes.jsonl", **_options(option))) == 1


def test_a_prompt_says_how_many_actions_a_turn_holds(tmp_path: Path) -> None:
    rows = [_chat(_tagged([each] * 5), "Use up to 3 action(s) at a time.") for each in ("up", "up,down")]
    reading = _read(_write(tmp_path, *rows))
    assert _taken(reading) == 0
    again = _read(tmp_path / "episodes.jsonl", **_options(reading.remedies[0].text))
    assert _taken(again) == 2 and next(iter(again.plans.values())).env.config.decisive()["actions_per_turn"] == 3


@pytest.mark.parametrize(
    "reply",
    [
        "<action>up</action>\ndown",
        "<action>up, down</action>",
        "<action>up</action> or <action>down</action>",
        "<answer>down</answer><action>up</action>",
        "<think><action>down</action></think><action>up</action>",
        "<action>up</action>\nAction: down",
        {**_tool(direction="up"), "content": "<action>down</action>"},
        _tool(direction="up", steps=2),
        _tool(direction="up", then="down"),
        {"content": "<action>up</action>", "move": "down"},
        {"content": "<action>up</action>", "tool_calls": [{"function": {"name": "down", "arguments": "{}"}}, 7]},
        "",
        "I stay.",
    ],
)
def test_what_could_be_another_action_leaves_an_unconfirmed_episode_out(tmp_path: Path, reply: Any) -> None:
    rows = [_chat([*_tagged(FIRST[:-1]), reply], id="odd"), *(_chat(_tagged(SECOND), id=str(n)) for n in range(4))]
    reading = _read(_write(tmp_path, *rows), argument="direction" if isinstance(reply, dict) else "")
    assert "episodes.jsonl line 1" in [each.place for each in reading.problems]


def test_what_confirms_a_turn() -> None:
    """A reward that is paid for unusable turns, too, and an unchanged board beside a wall confirm nothing."""
    env = _room()
    start = {"state": LEVEL, "instruction": None}

    def confirmed(moves: Sequence[str], kinds: Sequence[str]) -> tuple[int, bool, tuple[str, ...]]:
        result = confirm(env, start, [[(move, None)] for move in moves], [each.split() for each in kinds])
        return result.turns, result.whole, result.kinds

    moves = ["down", "right", "up"]
    assert confirmed(moves, ["", "reward", "reward", "reward"])[:2] == (0, False)
    assert confirmed(moves, ["", "board", "board", "board"]) == (3, True, ("board",))
    assert confirmed(moves, ["", "", "", "board"])[0] == 1  # right and two unusable turns lead there, too
    assert confirmed(["right", "down", "down"], ["", "", "board", "board"])[:2] == (2, False)
    assert not confirmed(moves, ["board", "board", "board", ""])[1]
    assert confirmed(["invalid"], ["", "picture"]) == (1, True, ("picture",))
    assert confirmed([*FIRST], ["", *["picture"] * 4, ""])[1]  # the last turn of the budget, and no success was near
    env = GymEnv(GymConfig(id="FrozenLake-v1", kwargs={"is_slippery": False}))
    start = {"state": GymEnv.make_task(env.config, 0).initial_state}
    assert confirmed(["right", "down"], ["", "", "end:terminated"])[:2] == (1, False)  # so do down and right
    assert confirmed(["right", "down"], ["", "picture", "picture"]) == (2, True, ("picture",))
    start = {"state": SvgEnv.make_task(SvgConfig(), 0).initial_state}
    drawn = [("svg", "\"<svg><rect width='9' height='9'/></svg>\"")]
    for kind, turns in (("info:valid_svg", 0), ("picture", 1)):  # other drawings are valid, too
        assert confirm(SvgEnv(), start, [drawn], [[], [kind]]).turns == turns
    assert confirm(SvgEnv(), start, [drawn, drawn], [[], [], ["picture"]]).turns == 1  # any drawing may be the first


def test_successes_earn_the_dialect_and_one_that_does_not_replay_takes_it_back(tmp_path: Path) -> None:
    won = [_chat(_tagged(["right", "right"][: 1 + (n == 9)]), success=True, id=str(n)) for n in range(3)]
    level = LEVEL.replace("@ $.", " @$.")
    for row in won:
        row["initial_state"] = level
    lost = [_chat(_tagged(FIRST), id="a"), _chat(_tagged(SECOND), id="b")]
    reading = _read(_write(tmp_path / "earned", *won, *lost))
    assert _taken(reading) == 5 and _evidence(reading) == [["end"]] * 3 + [["success", "read"]] * 2
    false = _chat(_tagged(FIRST), id="c", success=True)
    reading = _read(_write(tmp_path / "refuted", *won, *lost, false))
    assert _taken(reading) == 3
    assert sorted(each.kind for each in reading.problems) == ["disagrees", "unconfirmed", "unconfirmed"]
    assert _taken(_read(tmp_path / "refuted" / "episodes.jsonl", evidence="declared")) == 5


def test_integers_need_confirmation_or_words(tmp_path: Path) -> None:
    reading = _read(write_lines(tmp_path, episode(0, 0, 0, 0)), format="jsonl")
    assert "numbers" in reading.problems[0].detail and _taken(reading) == 0
    own = write_lines(tmp_path / "own", episode(0, 0, 0, 0, recorder="pivot"))
    assert _taken(_read(own, format="jsonl")) == 1


def test_a_level_of_a_foreign_seed_needs_evidence(tmp_path: Path) -> None:
    task = SokobanEnv.make_task(SokobanConfig(), 5)
    record = episode(*["up"] * 9, env_config={}, seed=task.seed)
    del record["initial_state"]
    reading = _read(write_lines(tmp_path / "a", record), format="jsonl")
    assert "--option generator=pivot" in reading.problems[0].detail
    assert _taken(_read(tmp_path / "a", format="jsonl", generator="pivot")) == 1
    for board, count in ((task.initial_state, 1), (LEVEL, 0)):
        shown = {**record, "turns": [{**record["turns"][0], "observation": f"Now:\n{board}"}, *record["turns"][1:]]}
        assert _taken(_read(write_lines(tmp_path / f"b{count}", shown), format="jsonl")) == count


@pytest.mark.parametrize("mask", [{"weight": 0}, {"loss": False}])
def test_confirmation_decides_whether_a_masked_reply_was_played(tmp_path: Path, mask: dict[str, Any]) -> None:
    shot = {"content": "<action>up</action>", **mask}
    rows = [_chat([shot, *_tagged(moves)], id=str(n)) for n, moves in enumerate((FIRST, SECOND))]
    reading = _read(_write(tmp_path / "a", *rows))
    assert _taken(reading) == 0
    assert all("masked=played" in each.detail and "masked=skipped" in each.detail for each in reading.problems)
    source, options = tmp_path / "a" / "episodes.jsonl", {"masked": "skipped"}
    result = pivot.import_rollouts(source, tmp_path / "store", format="openai", options=options)
    assert result.problems == []
    assert pivot.load_store(tmp_path / "store").labels.collect()["pivot_step"].to_list() == [2, 2]
    env = _room()
    users = [each for each in rows[0]["messages"] if each["role"] == "user"]
    for message, move in zip(users[1:], FIRST, strict=True):
        message["content"] = f"Now:\n{env.state_text()}"
        env.step(env.encode_action(move))
    reading = _read(_write(tmp_path / "b", rows[0]))
    assert [entry.taken.masked for entry in reading.plans["sokoban"].entries] == ["skipped"]


def test_equal_beginnings_of_chats_may_be_examples(tmp_path: Path) -> None:
    levels = [LEVEL, LEVEL.replace("@ $.", " @$.")]
    rows = [
        _chat(["<action>up</action>", *_tagged(moves[:3])], id=str(number), initial_state=levels[number % 2])
        for number, moves in enumerate((["down"] * 3, ["left"] * 3, ["up", "down", "left"], ["down", "up", "up"]))
    ]
    reading = _read(source := _write(tmp_path, *rows))
    assert _taken(reading) == 0 and all("--option examples=1" in each.detail for each in reading.problems)
    for count, turns in ((0, 4), (1, 3)):
        again = _read(source, examples=count)
        assert {entry.taken.finding.turns for entry in again.plans["sokoban"].entries} == {turns}
        assert _taken(again) == 4
    assert _taken(_read(_write(tmp_path / "one", *({**row, "initial_state": LEVEL} for row in rows)))) == 4


def test_examples_before_boards_and_unusable_replies_have_a_remedy(tmp_path: Path) -> None:
    """A success whose replay equals with and without the examples does not confirm them."""
    rows = []
    for n, moves in enumerate((*WINS, ["invalid", *FIRST[:4]], ["left", "invalid", *FIRST[:2], "invalid"], FIRST)):
        env = _room(LEVEL.replace("@ $.", " @$.") if n == 3 else LEVEL)
        row = _chat(_tagged(["up", "left"]), id=str(n), success=n < 3, initial_state=env.state_text())
        for move in moves:
            said = "Hm." if move == "invalid" else f"<action>{move}</action>"
            row["messages"].append({"role": "user", "content": f"Now:\n{env.state_text()}"})
            row["messages"].append({"role": "assistant", "content": said})
            env.step(env.encode_action(move))
        rows.append(row)
    reading = _read(_write(tmp_path, *rows))
    assert _taken(reading) == 0 and reading.remedies[-1].options["examples"] == 2
    again = _read(tmp_path / "episodes.jsonl", **reading.remedies[-1].options)
    assert _taken(again) == len(rows)


def test_chats_that_are_longer_than_their_episodes(tmp_path: Path) -> None:
    """They are contradictions, so the whole source is no longer trusted."""
    shots = ["left", "up", "right"]
    rows = [_chat([*_tagged([shot, *FIRST])], id=shot) for shot in shots]
    reading = _read(_write(tmp_path, *rows, _chat(_tagged(["up", *SECOND[:4]]), id="short")))
    assert _taken(reading) == 0 and reading.audits["sokoban"].contradicted == 3
    assert _taken(_read(tmp_path / "episodes.jsonl", examples=1)) >= 3


def test_only_the_user_can_declare_replies_unusable(tmp_path: Path) -> None:
    rows = [_chat([*_tagged(moves[:4]), "I am not sure."], id=str(n)) for n, moves in enumerate((FIRST, SECOND))]
    reading = _read(_write(tmp_path, *rows))
    assert _taken(reading) == 0 and not reading.remedies[-1].options
    assert _taken(_read(tmp_path / "episodes.jsonl", **_options(reading.remedies[-1].text))) == 2


def test_replies_that_are_not_turns(tmp_path: Path) -> None:
    shot = {"content": "<action>up</action>", "source": "input"}
    for name, replies in (("input", [shot, *_tagged(FIRST)]), ("end", [*_tagged(FIRST), "I lost."])):
        reading = _read(_write(tmp_path / name, _chat(replies)))
        assert _taken(reading) == 1 and reading.audits["sokoban"].trailing == (name == "end")
    more = _chat([*_tagged(FIRST), "<action>up</action>"])
    assert _read(_write(tmp_path / "more", more)).problems[0].kind == "disagrees"
    two = _chat([{"content": reply, "name": f"p{n % 2}"} for n, reply in enumerate(_tagged(FIRST))])
    assert "--option agent=p0" in _read(_write(tmp_path / "two", two)).problems[0].detail


def test_odd_values_keep_an_episode(tmp_path: Path) -> None:
    row = json.dumps(_chat(_tagged(FIRST), score=[1.0, "NAN"], id="a")).replace('"NAN"', "NaN")
    turn = {"actions": ["up"], "reward": float("inf"), "logprobs": [0.0, float("-inf")], "score": float("nan")}
    reading = _read(write_lines(tmp_path / "turn", episode(turns=[turn] * 4)), format="jsonl")
    assert _taken(reading) == 1
    half = json.dumps(_chat(_tagged(SECOND), note="HALF", id="b")).replace("HALF", "\\ud83d")
    source = _write(tmp_path / "source", row.encode(), row.encode(), half.encode())
    result = pivot.import_rollouts(source, tmp_path / "store", format="openai")
    assert result.episodes == 2 and result.repeated == 1
    assert [(each.kind, each.kept) for each in result.problems] == [("repeated", True)]
    other = [json.loads(each["other"]) for each in imports_of(tmp_path / "store") if each["other"]]
    assert other[0]["score"] == [1.0, None] and other[0]["not_finite"] == ["score"]
    assert problems(tmp_path / "store") == []


def test_a_default_horizon(tmp_path: Path) -> None:
    """It cuts nothing in silence; where failures have no end, the message names the option to set."""
    config = {name: value for name, value in SETTINGS.items() if name != "horizon"}
    long, short = (_chat(_tagged(["up"] * count), env_config=config) for count in (12, 5))
    reading = _read(_write(tmp_path / "long", long))
    assert "--set sokoban.horizon=12" in reading.problems[0].detail and reading.problems[0].kind == "settings"
    reading = _read(_write(tmp_path / "short", short))
    assert any("--set sokoban.horizon=5" in each.text for each in reading.remedies)
    env = pivot.Recorder(gymnasium.wrappers.TimeLimit(SokobanEnv(), 4), tmp_path / "recorded")
    env.reset(seed=1)
    for _ in range(4):
        env.step(0)
    env.close()
    result = pivot.import_rollouts(tmp_path / "recorded", tmp_path / "store")
    assert result.problems == []
    assert pivot.load_store(tmp_path / "store").episodes.collect()["horizon"].to_list() == [4]
