"""A stand-in for a teacher model, for servers of tests and benchmarks: it chooses by the schema of the request."""

from typing import Any


def asked(body: dict[str, Any]) -> str:
    """Return the text of a writer's prompt."""
    return next(part["text"] for part in body["messages"][0]["content"] if part["type"] == "text")


def guidance_fields(text: str, prose: str) -> dict[str, Any]:
    """Return the first choice of each kind that a prompt lists, with some free prose."""
    names: dict[str, list[str]] = {}
    field = ""
    for line in text.partition("Answer with JSON only")[2].splitlines():
        if line.startswith('- "'):
            field = line.split('"')[1]
        elif line.startswith('  - "'):
            names.setdefault(field, []).append(line.split('"')[1])
    first = {name: choices[0] for name, choices in names.items()}
    return {"sign": first["sign"], "facts": [first["facts"]], "action": first["action"], "wording": 1, "prose": prose}
