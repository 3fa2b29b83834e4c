"""``docs/reference/configuration.md``, made from the config types so that it cannot rot.

``python -m pivot.cli.config_docs docs/reference/configuration.md`` rewrites it; a test compares the committed page with
it. Only PIVOT's own plugins are in it.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from ..core import plugins
from ..datasets.store.config import EnvRun, PartConfig, RunConfig
from ..models.service import default_cache
from ..training.analyzer_sft.config import SftConfig
from ..training.policy_rl.config import RlConfig
from . import app
from .evaluate import evaluation
from .from_config import Form
from .model_flags import RoleName, flags_of
from .settings_help import settings_rows
from .train import train
from .variables import VARIABLES

_ROLES: tuple[RoleName, ...] = ("policy", "teacher")

_HEAD = """# Configuration

<!-- This page is made by: make docs -->

For users who look up a setting. Afterwards you know every setting with its type and default, and how to set it. The
resolved config of a run is in `run.json` of its store, under `config`; to reuse it, run
`pivot build --config DIR/run.json --out COPY`. On the command line:

| what | option | example |
|---|---|---|
| setting of an environment | `--set ENV.KEY=VALUE` | `--set sokoban.boxes=2` |
| setting of a solver | `--solver ENV.KEY=VALUE` | `--solver navigation.threshold=1.0` |
| field of a run | an option of its own | `--rollouts 8`, `--seed 1`, `--split episode` |
| setting of a format | `--option KEY=VALUE` of `pivot import` | `--option step=0.3` |
| option or service of a model | an option of its own | `--model NAME`, `--teacher-model NAME`, `--base-url URL` |

Values are JSON or text. `pivot settings NAME` shows the same of what is installed, third-party plugins included.
"""


def page() -> str:
    """Return the whole page, Markdown."""
    parts = [_HEAD, "## A run\n", "`config` of `run.json`; from Python the first argument of `pivot.build`.\n"]
    parts += [_table(RunConfig), "An entry of `environments`:\n", _table(EnvRun)]
    parts += ["`policy` and `teacher`:\n", _table(PartConfig), "## Environments\n"]
    for name in _ours("environments"):
        parts += [f"### {name}\n", f"`--set {name}.KEY=VALUE`\n", _table(_settings("environments", name))]
        solver = _settings("solvers", name)
        if solver.model_fields:
            parts += [f"Its solver, `--solver {name}.KEY=VALUE`:\n", _table(solver)]
    parts += ["## Models, policies, writers\n", "Settings that decide the answers, `options` of a policy or teacher:\n"]
    for group in ("models", "policies", "writers"):
        for name in _ours(group):
            parts += _part(f"{plugins.GROUPS[group].member} {name}", _settings(group, name))
    parts += ["Settings of the model server, `service` of a policy or teacher; they do not affect the data:\n"]
    for name in _ours("models"):
        parts += _part(f"model {name}", plugins.load("models", name).service_type)
    parts += ["## Formats of recorded episodes\n", "`pivot import SOURCE --format NAME --option KEY=VALUE`\n"]
    for name in _ours("importers"):
        parts += _part(f"format {name}", _settings("importers", name))
    parts += ["## Training\n", "### Stage I\n", "`pivot train sft`, and the keys of a recipe.\n", _table(SftConfig)]
    parts += ["### Stage II\n", "`pivot train rl`.\n", _table(RlConfig)]
    parts += _commands()
    parts += ["## Environment variables\n", "`pivot settings variables`\n"]
    named = [[f"`{name.replace(', ', '`, `')}`", default, text] for name, default, text in VARIABLES]
    parts += [_markdown(["name", "default", "meaning"], named)]
    return "\n".join(parts)


_KEYS = {
    "run__envs": "environments",
    "run__tasks": "environments.ENV.tasks",
    **dict.fromkeys(("run__settings", "run__targets", "run__scorer", "run__backend"), "environments.ENV.settings"),
    "run__task_file": "environments.ENV.settings",
    "run__solvers": "solvers.ENV.KEY",
    "relabel__solvers": "solvers.ENV.KEY",
    **{f"{role}__name": f"{role}.name" for role in ("policy", "teacher")},
    **{f"{role}__own": f"{role}.options.KEY" for role in ("policy", "teacher")},
    **{f"{role}__service_own": f"{role}.service.KEY" for role in ("policy", "teacher")},
    **{f"{role}__no_cache": f"{role}.service.cache" for role in ("policy", "teacher")},
    **{f"analyzer__{each.key}": f"{each.part}.{each.key}" for each in flags_of("analyzer")},
    "analyzer__no_cache": "service.cache",
    "rl__named": "environments",
    "rl__weight": "environments.ENV.weight",
    **{f"{role}__{each.key}": f"{role}.{each.part}.{each.key}" for role in _ROLES for each in flags_of(role)},
}
"""Keys in a file of the options that are no field of a form, by parameter."""


def _commands() -> Iterable[str]:
    """Yield, for every command with ``--config FILE``, its options with their keys in the file."""
    yield "## Options and keys of each command\n"
    yield "What an option sets can also be set by its key in `--config FILE`. The option wins.\n"
    groups = {"": app, "train ": train, "evaluate ": evaluation}
    for prefix, group in groups.items():
        for command in group.registered_commands:
            if command.callback is not None and (forms := getattr(command.callback, "forms", None)):
                name = command.name or command.callback.__name__.replace("_", "-")
                yield f"### pivot {prefix}{name}\n"
                yield _markdown(["option", "key", "meaning"], (row for form in forms for row in _options(form)))


def _options(form: Form[Any]) -> Iterable[Sequence[str]]:
    """Yield option, key and meaning of every parameter of a form; former names are left out."""
    fields = {f"{form.name}__{name}": name for name in form.keys}
    keys = fields | _KEYS | {"__".join((form.name, *leaf.keys)): ".".join(leaf.keys) for leaf, _ in form.leaves()}
    for each in form.parameters():
        about = get_args(each.annotation)[1]
        if not about.hidden:
            names = (about.default, *(about.param_decls or ())) if isinstance(about.default, str) else (about.metavar,)
            written = " ".join(f"`{text}`" for text in names)
            yield [written, f"`{keys[each.name.partition('__is')[0]]}`", _of_anyone(about.help or "")]


def _part(title: str, kind: type[BaseModel]) -> Iterable[str]:
    return [f"### {title}\n", _table(kind)] if kind.model_fields else []


def _ours(group: str) -> list[str]:
    return [name for name in plugins.names(group) if plugins.is_ours(group, name)]


def _settings(group: str, name: str) -> type[BaseModel]:
    return plugins.load(group, name).config_type


def _table(kind: type[BaseModel]) -> str:
    rows = (
        [f"`{key}`", type_, default if default == "required" else f"`{_of_anyone(default)}`", text.replace("``", "`")]
        for key, type_, default, text in settings_rows(kind)
    )
    return _markdown(["key", "type", "default", "meaning"], rows)


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def _of_anyone(default: str) -> str:
    """Return a default without this machine's folders."""
    return default.replace(default_cache(), "~/.cache/pivot/calls.sqlite")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
