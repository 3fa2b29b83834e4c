"""Hostile texts that a foreign store may contain, and a store full of them."""

from pathlib import Path

from ..stores import Rows, change_rows, rewrite_manifest, table_files

HOSTILE = (
    "<script>window.pwned = 1</script>",
    '<img src=x onerror="window.pwned = 2">',
    "</script><script>window.pwned = 3</script>",
    "\"');window.pwned = 4;//",
    "${window.pwned = 5}`",
    "javascript:window.pwned = 6",
    "<!-- <svg onload=window.pwned=7>",
    '{"type": "script", "props": {"dangerouslySetInnerHTML": {"__html": "<img src=x onerror=window.pwned=8>"}}}',
    "line\u2028separator\u2029paragraph",
    "control \x00 \x07 \x1b[31m \x7f \x9b",
    "bidi \u202eevil\u202c \u2066mirror\u2069 \u200f",
    "zwj \u200d tag \U000e0041 selector \ufe0f space \u00a0 \u2003 filler \u3164 braille \u2800",
    "joiner \u034f soft \u00ad",
    "\U0001f600 日本語 é e\u0301 \ufeff",
    "[bold red]markup[/] {{template}} %s",
)
LONG = "<b>long</b> " * 4200
"""A text of some 50 kB."""


def everything() -> str:
    """Return all hostile texts as one."""
    return "\n".join(HOSTILE)


def poison(root: Path) -> None:
    """Put hostile texts into every text of a store that a policy, a writer or an importer could have written."""
    text = everything()

    def episodes(rows: Rows) -> None:
        for row in rows:
            row |= {"instruction": text + LONG, "task_id": row["task_id"] + HOSTILE[0], "eval_set": HOSTILE[1]}
            row |= {"policy": HOSTILE[2], "policy_config": "{" + HOSTILE[7], "error": text}

    def steps(rows: Rows) -> None:
        for row in rows:
            row |= {"response": text + LONG, "observation_text": text, "finish_reason": HOSTILE[0]}
            row |= {"payload": HOSTILE[7], "score_parts": '{"__proto__": {"polluted": true}, "a": NaN}'}

    def labels(rows: Rows) -> None:
        for row in rows:
            reasons = [{"name": HOSTILE[0], "kind": HOSTILE[1], "detail": text + LONG}]
            row |= {"failure_reason": text + LONG, "teacher": HOSTILE[1], "accepted": False, "reject_reasons": reasons}

    changes = {"episodes": episodes, "steps": steps, "labels": labels}
    for env in ("sokoban", "frozenlake"):
        for name in table_files(root, env):
            folder = name.split("/")[0]
            if folder in changes:
                change_rows(root, name, changes[folder])
    rewrite_manifest(root)
