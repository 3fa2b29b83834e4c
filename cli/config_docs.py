"""Write ``docs/reference/configuration.md`` from the models of the settings: ``python -m pivot.cli.config_docs FILE``.

Each setting is described once: a later section with the same setting only names it.
"""

import re
import sys
from pathlib import Path

from pydantic import BaseModel

from ..core import plugins
from ..datasets.store.config import EnvRun, PartConfig, RunConfig
from ..models.service import default_cache
from ..training.analyzer_sft.config import SftConfig
from ..training.policy_rl.config import RlConfig
from .settings_help import VARIABLES, settings_rows

_HEAD = """# Configuration

<!-- This page is made by: make docs -->

For users who look up a setting. Afterwards you know every setting with its type and default, and how to set it. What an
option sets can also be set by its key in a YAML, TOML or JSON file: `--config FILE`. The option wins. The resolved
config of a run is in `run.json` of its store; to reuse it: `pivot build --config DIR/run.json --out COPY`. On the
command line:

| what | option | example |
|---|---|---|
| setting of an environment | `--set ENV.KEY=VALUE` | `--set sokoban.boxes=2` |
| setting of a solver | `--solver ENV.KEY=VALUE` | `--solver navigation.threshold=1.0` |
| field of a run | an option of its own | `--rollouts 8`, `--seed 1`, `--split episode` |
| setting of a format | `--option KEY=VALUE` of `pivot import` | `--option step=0.3` |
| option or service of a model | an option of its own | `--model NAME`, `--writer-model NAME`, `--base-url URL` |

Values are JSON or text. This page has the first statement about each setting, once; `pivot settings NAME`, also of
third-party plugins, and `pivot COMMAND --help` say more.
"""


_FIRST = re.compile(r"[;.]\s+(?=[A-Za-z`(])|\.$")
"""The end of a first statement; the page has that of each meaning, the help all of them."""


class Page:
    """The page while it is written."""

    def __init__(self) -> None:
        self.lines = [_HEAD]
        self._homes: dict[tuple[str, str], tuple[str, str]] = {}
        """Section and default of each setting that is described, by key and meaning."""

    def section(self, heading: str, kind: type[BaseModel], text: str = "") -> None:
        """Add a section with the settings of a model; nothing for a model without settings."""
        if not kind.model_fields:
            return
        self.lines += [f"{heading}\n", *([f"{text}\n"] if text else [])]
        title, again, described = heading.lstrip("# "), dict[str, list[str]](), list[str]()
        for key, type_, default, meaning in settings_rows(kind):
            shown = default.replace(default_cache(), "~/.cache/pivot/calls.sqlite")
            first = _FIRST.split(meaning.replace("``", "`"))[0]
            home, before = self._homes.setdefault((key, first), (title, default))
            if home == title:
                value = "" if shown in ("null", '""', "{}", "[]") else shown if shown == "required" else f"`{shown}`"
                about = ["" if type_ == "true or false" else type_.removeprefix(" or ").replace(" or null", ""), value]
                described.append(f"- `{key}` ({', '.join(filter(None, about))}): {first}.")
            else:
                again.setdefault(home, []).append(f"`{key}`" + (f" (`{shown}`)" if default != before else ""))
        self.lines += ["\n".join(described) + "\n"] if described else []
        self.lines += [f"As for {home}: {', '.join(keys)}.\n" for home, keys in again.items()]


def page() -> str:
    """Return the whole page, Markdown."""
    made = Page()
    made.section("## A run", RunConfig, "`config` of `run.json`; from Python the first argument of `pivot.build`.")
    made.section("### An entry of environments", EnvRun)
    made.section("### policy and teacher", PartConfig)
    made.lines.append("## Environments and their solvers\n")
    for name in _ours("environments"):
        made.section(f"### {name}", plugins.load("environments", name).config_type)
        made.section(f"### solver {name}", plugins.load("solvers", name).config_type)
    made.lines.append("## Models, policies, writers\n\n`options` of a policy or teacher decide the answers:\n")
    for group in ("models", "policies", "writers"):
        for name in _ours(group):
            kind = plugins.load(group, name).config_type
            made.section(f"### {plugins.GROUPS[group].member} {name}", kind)
    made.lines.append("`service` of a policy or teacher does not affect the data:\n")
    for name in _ours("models"):
        made.section(f"### service of {name}", plugins.load("models", name).service_type)
    made.lines.append("## Formats of recorded episodes\n\n`pivot import SOURCE --format NAME --option KEY=VALUE`\n")
    for name in _ours("importers"):
        made.section(f"### format {name}", plugins.load("importers", name).config_type)
    made.section("## Stage I", SftConfig, "`pivot train sft`, and the keys of a recipe.")
    made.section("## Stage II", RlConfig, "`pivot train rl`.")
    made.lines.append("## Environment variables\n")
    made.lines += [f"- `{name.replace(', ', '`, `')}` ({default}): {meaning}" for name, default, meaning in VARIABLES]
    return "\n".join(made.lines) + "\n"


def _ours(group: str) -> list[str]:
    return [name for name in plugins.names(group) if plugins.is_ours(group, name)]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
