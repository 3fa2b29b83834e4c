"""Hostile stores by name, written from the public documentation of the store alone (docs/reference/store.md).

`HOSTILE` has them all. What leads out by a link or a name leads to the folder of `make_canary`.
"""

from dataclasses import dataclass

from pivot.tests.core.hostile_makers import (
    EPISODES,
    LABELS,
    SPOKEN,
    STEPS,
    Maker,
    bomb_rows,
    edit_manifest,
    edit_table,
    filled,
    folder,
    hole,
    journal,
    link,
    named,
    no_rights,
    patch_rows,
    picture,
    pipe,
    policy,
    settle,
    shard_named,
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
    """

    make: Maker
    refused: bool = True


DEEP = 10_000_000
YAML_BOMB = (
    "---\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'lol'}]\n" for n in range(10)) + "---\n"
)


_MOVE = {"moves": [["new/notes.txt", "UP/notes.txt"]], "delete": ["UP/deep"], "replaces": ["OUT/deep"]}
_LINKS: dict[str, Maker] = {
    **{
        f"link {name} out": link(name, f"{{out}}/{target}")
        for name, target in {
            "pivot.duckdb": "notes.txt",
            ".lock": "notes.txt",
            ".tmp": "deep",
            ".commit": "deep",
            "episodes": "episodes",
            "episodes/sokoban": "episodes/sokoban",
            "dataset": "deep",
            "dataset/README.md": "README.md",
            "labels/v2": "episodes",
        }.items()
    },
    "link to nothing": link(EPISODES, "/nowhere/at/all"),
    "link to /dev/zero": link("run.json", "/dev/zero"),
    "hard link .lock": link(".lock", "{out}/notes.txt", hard=True),
    "hard link run.json": link("run.json", "{out}/run.json", hard=True),
}
_PIPES: dict[str, Maker] = {
    f"pipe {name}": pipe(name)
    for name in (".lock", "run.json", "manifest.json", EPISODES, ".commit/journal.json", "pivot.duckdb", ".tmp")
}
_JOURNALS: dict[str, Maker] = {
    "journal moves out": journal(_MOVE),
    "journal of a linked folder": journal(
        {"source": "labels", "target": "UP/deep", "mark": "1", "objects": [], "obsolete": ["UP/notes.txt"]}
    ),
    "journal lacks fields": journal({}),
    "journal is text": journal('"' + SPOKEN.encode("unicode_escape").decode().replace("\\x", "\\u00") + '"'),
    "journal names NUL": journal({"moves": [["a\0b", "\0"]], "delete": ["a\0b"], "replaces": ["\0"]}),
}
_JSON: dict[str, Maker] = {
    "deep manifest": write("manifest.json", b"[" * DEEP),
    "sparse run.json of 40 GB": hole("run.json", 40 << 30),
    "manifest is a list": write("manifest.json", b"[]"),
    "manifest with a number of a million digits": write("manifest.json", b'{"files": ' + b"9" * 1_000_000 + b"}"),
    "manifest with NaN": edit_manifest(lambda m: m["files"][EPISODES].update(bytes=float("nan"))),
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
    "run.json with controls": settle("run_id", SPOKEN),
    "environment with controls": settle("config.environments." + SPOKEN.replace(".", ""), {"tasks": 1, "settings": {}}),
    "environment named ..": settle("config.environments", {"../../..": {"tasks": 1, "settings": {}}}),
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
    "targets are a folder": settle("config.environments.svg", {"tasks": 1, "settings": {"targets": "OUT"}}),
    "task files outside": settle(
        "config.environments.navigation", {"tasks": 1, "settings": {"backend": "thor", "task_files": ["OUT/notes.txt"]}}
    ),
}
_TABLES: dict[str, Maker] = {
    "footer claims 2**40 rows": patch_rows(EPISODES, 2**40),
    "footer claims -1 rows": patch_rows(STEPS, 2**63 - 1),
    "one byte": write(EPISODES, b"P"),
    "footer longer than the file": write(STEPS, b"PAR1" + b"\0" * 40 + b"\xff\xff\xff\x7fPAR1"),
    "two million equal rows": edit_table(EPISODES, bomb_rows),
    "bomb of zstd": edit_table(
        STEPS, with_column("response", "a" * 8_000_000), compression="zstd", use_dictionary=False
    ),
    "column missing": edit_table(EPISODES, lambda table: table.drop_columns(["actions"])),
    "column more": edit_table(EPISODES, lambda table: table.append_column("x", table["env"])),
    "numbers for texts": edit_table(EPISODES, with_column("episode_id", 7)),
    "nulls in keys": edit_table(EPISODES, with_column("episode_id", None)),
    "no rows": edit_table(EPISODES, lambda table: table.slice(0, 0)),
    "controls in ids": edit_table(EPISODES, with_column("episode_id", SPOKEN)),
    "controls in labels": edit_table(LABELS, with_column("failure_mode", SPOKEN)),
    "controls in texts": edit_table(EPISODES, with_column("instruction", SPOKEN)),
    "controls in actions": edit_table(STEPS, with_column("action", SPOKEN)),
    "id that leads out": edit_table(EPISODES, with_column("episode_id", "../../../outside/notes.txt")),
    "deep JSON cell": edit_table(STEPS, with_column("info", "[" * 1_000_000)),
    "deep JSON config": edit_table(EPISODES, with_column("env_config", '{"a":' * 200_000 + "1" + "}" * 200_000)),
    "config is not JSON": edit_table(EPISODES, with_column("env_config", SPOKEN)),
    "state of a huge board": edit_table(EPISODES, with_column("initial_state", "\n".join(["#" * 1000] * 1000))),
    "two billion steps": filled(EPISODES, "num_steps", 2**31 - 1),
    "pivot far away": filled(LABELS, "pivot_step", -(2**31)),
    "picture of 30,000 x 30,000": picture(30_000),
    "picture that hides its size": picture(20_000, 32),
    "picture of 8,000 x 8,000": picture(8_000),
}
_FILES: dict[str, Maker] = {
    "card with a YAML bomb": write("dataset/README.md", YAML_BOMB.encode()),
    "card runs Python": write("dataset/README.md", b"---\na: !!python/object/apply:os.system ['touch run']\n---\n"),
    "card with controls": write("dataset/README.md", SPOKEN.encode()),
    "views read outside": views(
        "DROP VIEW IF EXISTS episodes", "CREATE VIEW episodes AS SELECT * FROM read_text('OUT/notes.txt')"
    ),
    "database is not a database": write("pivot.duckdb", b"DUCK" * 9_999, seal=False),
    "name with controls": shard_named("00002" + "\x1b[31m\n\r\x07"),
    "receipts are lists": write(".receipts/rollout/sokoban/00000.json", b"[[[1]]]", seal=False),
    "lock is a folder": folder(".lock"),
    "shard is a folder": folder(EPISODES),
    "manifest is a folder": folder("manifest.json"),
    "shard without rights": no_rights,
}
STILL_HOLDS = {"receipts are lists", "shard without rights", "database is not a database", "lock is a folder"}
"""Defects that `verify` may accept: it does not read them, or root may read them."""

HOSTILE: dict[str, Hostile] = {
    name: Hostile(make, name not in STILL_HOLDS)
    for group in (_LINKS, _PIPES, _JOURNALS, _JSON, _TABLES, _FILES)
    for name, make in group.items()
}
