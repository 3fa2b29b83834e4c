"""Guidance from the facts of a prompt, as a stand-in for a teacher gives it: for servers of tests and benchmarks."""

import re
from typing import Any


def asked(body: dict[str, Any]) -> str:
    """Return the text of a writer's prompt."""
    return next(part["text"] for part in body["messages"][0]["content"] if part["type"] == "text")


def guidance_fields(text: str, avoid: str) -> dict[str, Any]:
    """Return what a writer's model is asked for, true to the facts and the log in its prompt."""
    fields: dict[str, Any] = {"claims": _declared(text), "avoid": avoid}
    if "kept the goal within reach: " in text:
        fields["action"] = (
            text.split("kept the goal within reach: ")[1].split(".", maxsplit=1)[0].split(", ", maxsplit=1)[0]
        )
    return fields


def _declared(text: str) -> dict[str, bool]:
    step = int(text.split("Pivot step: ")[1].split(".", maxsplit=1)[0])
    log = text.split("Compact action log:\n")[1].split("\n\n", maxsplit=1)[0].splitlines()
    actions = [line.split("action=")[1].split()[0] for line in log]
    deadlock = "Failure mode: deadlock" in text
    truths = {
        "turns_ran_out": not deadlock,
        "box_lost": deadlock,
        "fell": deadlock,
        "no_action": actions[step] == "invalid",
        "action_repeated": step > 0 and actions[step] == actions[step - 1],
        "blocked": actions[step] != "invalid" and "moved=false" in log[step],
    }
    return {name: truths.get(name, False) for name in re.findall(r'^  - "(\w+)": ', text, re.MULTILINE)}
