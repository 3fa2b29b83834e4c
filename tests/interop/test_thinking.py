"""Replies of twelve thinking families from a server to an export, and in an import: thoughts stay, actions are read."""

import json
from pathlib import Path

import pivot
import polars as pl
from pivot.tests.flow_runs import config_of
from pivot.tests.models.chat_server import MODEL, key_of, number_of, served
from pivot.tests.models.thinking import FAMILIES

REPLIES = {family.reply: "ok" if family.is_thinking else "no_think" for family in FAMILIES.values()}
"""Outcome of every reply."""


def test_replies_of_a_server_are_stored_and_exported_as_the_model_wrote_them(tmp_path: Path) -> None:
    texts = [*REPLIES]
    with served(lambda body: {"text": texts[number_of(key_of(body)) % len(texts)]}) as server:
        part = {"name": "openai", "options": {"model": MODEL}, "service": {"base_url": server.url, "cache": ""}}
        config = config_of({"frozenlake": 2}, rollouts=8, tasks_per_shard=2, policy=part)
        pivot.build(config, tmp_path / "store", workers=1)
    steps = pivot.load_store(tmp_path / "store").steps.collect()
    assert dict(zip(steps["response"], steps["reply_outcome"], strict=True)) == REPLIES
    assert set(steps["action"]) == {"up"}
    pivot.export(tmp_path / "store", tmp_path / "pairs", format="pairs")
    said = dict(zip(zip(steps["episode_id"], steps["t"], strict=True), steps["response"], strict=True))
    pairs = [row for path in (tmp_path / "pairs").rglob("*.parquet") for row in pl.read_parquet(path).to_dicts()]
    assert {row["rejected"][0]["content"][0]["text"] == said[row["episode_id"], row["t"]] for row in pairs} == {True}
    for kind in ("corrections", "credit", "privileged", "analyzer"):
        pivot.export(tmp_path / "store", tmp_path / kind, format=kind)
        rows = [row for path in (tmp_path / kind).rglob("*.parquet") for row in pl.read_parquet(path).to_dicts()]
        texts_of = {row["completion"][0]["content"][0]["text"]: row["thought"] for row in rows if kind == "corrections"}
        assert rows and all((text in REPLIES) == (thought != "template") for text, thought in texts_of.items()), kind


def test_replies_of_an_import_are_kept_and_their_actions_read(tmp_path: Path) -> None:
    rows = [
        {
            "env": "frozenlake",
            "initial_state": "SFF\nFHF\nFFG",
            "messages": [{"role": "user", "content": "Now?"}, reply],
        }
        for reply in ({"role": "assistant", "content": text} for text in REPLIES)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pivot.import_rollouts(
        tmp_path / "rows.jsonl", tmp_path / "store", format="openai", options={"evidence": "declared"}
    )
    steps = pivot.load_store(tmp_path / "store").steps.collect()
    assert set(zip(steps["response"], steps["action"], strict=True)) == {(text, "up") for text in REPLIES}
