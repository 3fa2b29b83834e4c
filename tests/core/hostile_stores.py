"""Hostile stores by name, written from the public documentation of the store alone (docs/reference/store.md).

`HOSTILE` has them all. What leads out by a link or a name leads to the folder of `make_canary`.
"""

from dataclasses import dataclass

from pivot.tests.core.hostile_makers import (
    EPISODES,
    FRAMES,
    LABELS,
    SPOKEN,
    STEPS,
    TRAINING,
    Maker,
    arrow_instead,
    bomb_rows,
    chain,
    deep_folders,
    edit_manifest,
    edit_table,
    filled,
    folder,
    hole,
    huge_manifest,
    journal,
    link,
    many_files,
    named,
    no_rights,
    patch_rows,
    picture,
    policy,
    settle,
    shard_named,
    special,
    views,
    with_column,
    write,
)


@dataclass(frozen=True)
class Hostile:
    """One hostile store.

    Attributes:
        make: changes the store; gets the store and the folder outside.
        refused: whether `pivot verify` must not say that the store holds.
        root: whether only root can make it.
    """

    make: Maker
    refused: bool = True
    root: bool = False


DEEP = 10_000_000
YAML_BOMB = (
    "---\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'lol'}]\n" for n in range(10)) + "---\n"
)


_MOVE = {"moves": [["new/notes.txt", "UP/notes.txt"]], "delete": ["UP/deep"], "replaces": ["OUT/deep"]}
_LINKS: dict[str, Maker] = {
    **{
        f"link {name} out": link(name, f"{{out}}/{target}")
        for name, target in {
            "run.json": "run.json",
            "manifest.json": "manifest.json",
            "pivot.duckdb": "notes.txt",
            ".lock": "notes.txt",
            ".tmp": "deep",
            ".commit": "deep",
            ".receipts": "deep",
            "episodes": "episodes",
            "episodes/sokoban": "episodes/sokoban",
            EPISODES: "00000.parquet",
            "dataset": "deep",
            "dataset/README.md": "README.md",
            "dataset/more": "episodes",
            "labels/v2": "episodes",
            "notes": "deep",
        }.items()
    },
    "link to nothing": link(EPISODES, "/nowhere/at/all"),
    "link to itself": link(EPISODES, "00000.parquet"),
    "link to its own store": link("episodes/sokoban/again", "{store}"),
    "chain of links": chain,
    "link to /dev/zero": link("run.json", "/dev/zero"),
    "manifest from /dev/zero": link("manifest.json", "/dev/zero"),
    "link to /proc/self/mem": link(EPISODES, "/proc/self/mem"),
    "link to standard input": link("run.json", "/proc/self/fd/0"),
    "link to the root": link("dataset/all", "/"),
    "hard link .lock": link(".lock", "{out}/notes.txt", hard=True),
    "hard link shard": link(EPISODES, "{out}/00000.parquet", hard=True),
    "hard link run.json": link("run.json", "{out}/run.json", hard=True),
    "hard link card": link("dataset/README.md", "{out}/README.md", hard=True),
    "hard link database": link("pivot.duckdb", "{out}/notes.txt", hard=True),
}
_PIPES = (".commit/journal.json", "pivot.duckdb", ".tmp")
_SPECIAL: dict[str, Maker] = {
    f"{kind} {name}": special(name, kind)
    for kind, names in {
        "pipe": (".lock", "run.json", "manifest.json", EPISODES, "dataset/README.md", *_PIPES),
        "socket": (".lock", TRAINING, "manifest.json"),
    }.items()
    for name in names
}
_DEVICES: dict[str, Maker] = {
    "device run.json": special("run.json", "zero"),
    "device shard": special(STEPS, "random"),
    "device .lock": special(".lock", "zero"),
}
_JOURNALS: dict[str, Maker] = {
    "journal moves out": journal(_MOVE),
    "journal names paths": journal(
        {"from": ".commit/new", "to": "OUT", "remove": ["OUT/notes.txt"], "files": ["../../notes.txt"]}
    ),
    "journal of a linked folder": journal(
        {"source": "labels", "target": "UP/deep", "mark": "1", "objects": [], "obsolete": ["UP/notes.txt"]}
    ),
    "journal of absolute names": journal(
        {"source": "OUT", "target": "dataset", "mark": "1", "objects": ["OUT/notes.txt"], "obsolete": ["OUT"]}
    ),
    "journal is a list": journal([["new/notes.txt", "OUT/notes.txt"]]),
    "journal is empty": journal(""),
    "journal lacks fields": journal({}),
    "journal is text": journal('"' + SPOKEN.encode("unicode_escape").decode().replace("\\x", "\\u00") + '"'),
    "journal is deep": journal("[" * 1_000_000),
    "journal has wrong types": journal({"moves": 5, "delete": {"a": None}, "replaces": True}),
    "journal names NUL": journal({"moves": [["a\0b", "\0"]], "delete": ["a\0b"], "replaces": ["\0"]}),
}
_JSON: dict[str, Maker] = {
    "deep manifest": write("manifest.json", b"[" * DEEP),
    "deep closed manifest": write("manifest.json", b'{"files":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "deep objects": write("run.json", b'{"a":' * 500_000 + b"1" + b"}" * 500_000),
    "manifest of 200 MB": huge_manifest,
    "manifest of spaces": write("manifest.json", b" " * 200_000_000),
    "sparse manifest of 40 GB": hole("manifest.json", 40 << 30),
    "sparse run.json of 40 GB": hole("run.json", 40 << 30),
    "manifest is a list": write("manifest.json", b"[]"),
    "manifest is null": write("manifest.json", b"null"),
    "manifest is empty": write("manifest.json", b""),
    "manifest is not text": write("manifest.json", b"\xff\xfe\x00" * 99),
    "manifest with a number of a million digits": write("manifest.json", b'{"files": ' + b"9" * 1_000_000 + b"}"),
    "manifest with NaN": edit_manifest(lambda m: m["files"][EPISODES].update(bytes=float("nan"))),
    "manifest with infinity": edit_manifest(lambda m: m["files"][EPISODES].update(bytes=float("inf"))),
    "manifest with huge bytes": edit_manifest(lambda m: m["files"][EPISODES].update(bytes=10**400)),
    "manifest with a false record": edit_manifest(lambda m: m["files"].update({EPISODES: 7, STEPS: None})),
    "manifest with files as list": edit_manifest(lambda m: m.update(files=list(m["files"]))),
    "manifest without files": edit_manifest(lambda m: m.update(files={})),
    "manifest names ..": named("../" * 9 + "etc/hostname"),
    "manifest names an absolute path": named("OUT/notes.txt"),
    "manifest names controls": named(f"episodes/{SPOKEN}.parquet"),
    "manifest names NUL": named("episodes/sokoban/\0.parquet"),
    "manifest names half a pair": named("episodes/sokoban/\ud800.parquet"),
    "manifest names 5,000 letters": named("episodes/" + "x" * 5_000),
    "manifest has a key twice": write(
        "manifest.json", b'{"files": {"run.json": {"bytes": 1}, "run.json": {"bytes": 2}}, "files": {}}'
    ),
    "run.json is a list": write("run.json", b"[1]"),
    "run.json is null": write("run.json", b"null"),
    "run.json is empty": write("run.json", b""),
    "run.json of 200 MB": write("run.json", b'{"run_id": "' + b"x" * 200_000_000 + b'"}'),
    "run.json with controls": settle("run_id", SPOKEN),
    "environment with controls": settle("config.environments." + SPOKEN.replace(".", ""), {"tasks": 1, "settings": {}}),
    "environment named ..": settle("config.environments", {"../../..": {"tasks": 1, "settings": {}}}),
    "environment absolute": settle("config.environments", {"OUT": {"tasks": 1, "settings": {}}}),
    "config is a list": settle("config", [1, 2]),
    "a format from the future": settle("format", 10**30),
    "a format that is a text": settle("format", SPOKEN),
    "versions are a list": settle("versions", [SPOKEN]),
    "a billion levels": settle("config.environments.sokoban.tasks", 10**12),
    "shards of no levels": settle("config.tasks_per_shard", 0),
    "label version out": settle("config.label_version", "../../OUT"),
    "label version negative": settle("config.label_version", -(2**70)),
    "huge board": settle("config.environments.sokoban.settings.rows", 2**31),
    "huge cells": settle("config.environments.sokoban.settings.cell", 10**6),
    "policy is a checkpoint": policy("transformers", model="OUT"),
    "policy is a server": policy("openai", model="m", base_url="http://127.0.0.1:9/v1"),
    "policy is a module": policy("os:system", command="touch OUT/notes.txt"),
    "teacher is a checkpoint": settle("config.teacher", {"name": "transformers", "options": {"model": "OUT"}}),
    "teacher is a server": settle(
        "config.teacher", {"name": "openai", "options": {"model": "m", "base_url": "http://127.0.0.1:9"}}
    ),
    "targets are a folder": settle("config.environments.svg", {"tasks": 1, "settings": {"targets": "OUT"}}),
    "task files outside": settle(
        "config.environments.navigation", {"tasks": 1, "settings": {"backend": "thor", "task_files": ["OUT/notes.txt"]}}
    ),
}
_TABLES: dict[str, Maker] = {
    "footer claims 2**40 rows": patch_rows(EPISODES, 2**40),
    "footer claims -1 rows": patch_rows(STEPS, 2**63 - 1),
    "labels claim 2**40 rows": patch_rows(LABELS, 2**40),
    "one byte": write(EPISODES, b"P"),
    "zero bytes": write(LABELS, b""),
    "magic alone": write(STEPS, b"PAR1PAR1"),
    "footer longer than the file": write(STEPS, b"PAR1" + b"\0" * 40 + b"\xff\xff\xff\x7fPAR1"),
    "noise with magic": write(EPISODES, b"PAR1" + bytes(range(256)) * 99 + b"\x00\x40\x00\x00PAR1"),
    "sparse shard of 40 GB": hole(FRAMES, 40 << 30),
    "Arrow file": arrow_instead,
    "two million equal rows": edit_table(EPISODES, bomb_rows),
    "bomb of zstd": edit_table(
        STEPS, with_column("response", "a" * 8_000_000), compression="zstd", use_dictionary=False
    ),
    "texts of 50 MB": edit_table(EPISODES, with_column("instruction", "word " * 10_000_000), compression="zstd"),
    "labels of 50 MB": edit_table(LABELS, with_column("failure_reason", "word " * 10_000_000), compression="zstd"),
    "column missing": edit_table(EPISODES, lambda table: table.drop_columns(["actions"])),
    "column more": edit_table(EPISODES, lambda table: table.append_column("x", table["env"])),
    "numbers for texts": edit_table(EPISODES, with_column("episode_id", 7)),
    "texts for numbers": edit_table(STEPS, with_column("t", "seven")),
    "list for text": edit_table(LABELS, with_column("failure_mode", ["a", "b"])),
    "nulls in keys": edit_table(EPISODES, with_column("episode_id", None)),
    "no rows": edit_table(EPISODES, lambda table: table.slice(0, 0)),
    "controls in ids": edit_table(EPISODES, with_column("episode_id", SPOKEN)),
    "controls in labels": edit_table(LABELS, with_column("failure_mode", SPOKEN)),
    "controls in texts": edit_table(EPISODES, with_column("instruction", SPOKEN)),
    "controls in actions": edit_table(STEPS, with_column("action", SPOKEN)),
    "id that leads out": edit_table(EPISODES, with_column("episode_id", "../../../outside/notes.txt")),
    "frame that leads out": edit_table(STEPS, with_column("frame_id", "../../../outside/notes.txt")),
    "deep JSON cell": edit_table(STEPS, with_column("info", "[" * 1_000_000)),
    "deep JSON config": edit_table(EPISODES, with_column("env_config", '{"a":' * 200_000 + "1" + "}" * 200_000)),
    "config is not JSON": edit_table(EPISODES, with_column("env_config", SPOKEN)),
    "state of 10 MB": edit_table(EPISODES, with_column("initial_state", "#" * 10_000_000)),
    "state of a huge board": edit_table(EPISODES, with_column("initial_state", "\n".join(["#" * 1000] * 1000))),
    "two billion steps": filled(EPISODES, "num_steps", 2**31 - 1),
    "horizon of two billion": filled(EPISODES, "horizon", 2**31 - 1),
    "pivot far away": filled(LABELS, "pivot_step", -(2**31)),
    "picture of 30,000 x 30,000": picture(30_000),
    "picture that hides its size": picture(20_000, 32),
    "picture of 2**31 pixels a side": picture(2**31 - 1),
    "picture of 8,000 x 8,000": picture(8_000),
}
_FILES: dict[str, Maker] = {
    "card with a YAML bomb": write("dataset/README.md", YAML_BOMB.encode()),
    "card runs Python": write("dataset/README.md", b"---\na: !!python/object/apply:os.system ['touch run']\n---\n"),
    "card with controls": write("dataset/README.md", SPOKEN.encode()),
    "card of 200 MB": write("dataset/README.md", b"---\n" + b"a: b\n" * 40_000_000),
    "views read outside": views(
        "DROP VIEW IF EXISTS episodes", "CREATE VIEW episodes AS SELECT * FROM read_text('OUT/notes.txt')"
    ),
    "database is not a database": write("pivot.duckdb", b"DUCK" * 9_999, seal=False),
    "name with controls": shard_named("00002" + "\x1b[31m\n\r\x07"),
    "name of a mark": shard_named("00002\u202egnp"),
    "name of 200 letters": shard_named("x" * 200),
    "folders 400 deep": deep_folders,
    "20,000 empty files": many_files,
    "receipts are lists": write(".receipts/rollout/sokoban/00000.json", b"[[[1]]]", seal=False),
    "receipts are deep": write(".receipts/label-v1/sokoban/00000.json", b"[" * 1_000_000, seal=False),
    "lock is a folder": folder(".lock"),
    "shard is a folder": folder(EPISODES),
    "manifest is a folder": folder("manifest.json"),
    "shard without rights": no_rights,
}
STILL_HOLDS = {
    "receipts are lists",
    "receipts are deep",
    "shard without rights",
    "database is not a database",
    "lock is a folder",
}
"""Defects that `verify` may accept: it does not read them, or root may read them."""

HOSTILE: dict[str, Hostile] = {
    name: Hostile(make, name not in STILL_HOLDS, name in _DEVICES)
    for group in (_LINKS, _SPECIAL, _DEVICES, _JOURNALS, _JSON, _TABLES, _FILES)
    for name, make in group.items()
}
