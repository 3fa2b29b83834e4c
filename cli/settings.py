"""From options of the command line to one checked config."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .. import plugins
from ..datasets.config import RunConfig, env_config, environment, load_config, make_config
from ..datasets.run import Run
from ..errors import ConfigError
from ..storage import Address
from . import model_flags as flags


def resolve_config(
    file: Address | None,
    envs: Sequence[str],
    tasks: str | None,
    settings: Sequence[str],
    changes: dict[str, Any],
    solvers: Sequence[str] = (),
    flags_of: Mapping[str, str] | None = None,
) -> RunConfig:
    """Merge config file and options into one checked config.

    ``flags_of`` says which of the ``settings`` were written as a flag of their own, and how.

    Raises:
        ConfigError: an option cannot be used, or no environment is named.
    """
    base: dict[str, Any] = load_config(file).model_dump(mode="json") if file else {"environments": {}}
    runs: dict[str, Any] = base["environments"]
    names = list(dict.fromkeys(envs)) or list(runs)
    if not names:
        known = ", ".join(plugins.names("environments"))
        raise ConfigError(f"no environment named; give one or more of: {known}")
    counts = _task_counts(tasks, names)
    chosen: dict[str, Any] = {}
    for name in names:
        run = runs.get(name, {"tasks": None, "settings": {}})
        chosen[name] = {**run, "tasks": counts.get(name, run["tasks"]), "settings": dict(run["settings"])}
    for text in settings:
        name, key, value = parse_setting("--set", text)
        if name not in chosen:
            written = (flags_of or {}).get(text, f"--set {text}")
            raise ConfigError(f"{written}: environment {name!r} is not part of this build ({', '.join(names)})")
        chosen[name]["settings"][key] = value
    for name, run in chosen.items():
        if run["tasks"] is None:
            run["tasks"] = _default_tasks(name, run["settings"])
    raw = base | {"environments": chosen, "solvers": solver_settings(base.get("solvers", {}), solvers, chosen)}
    for key, value in changes.items():
        if isinstance(value, flags.Change):
            raw[key] = value.apply(key, _part(base, key), _part(base, "policy"))
        elif value is not None:
            raw[key] = value
    resolved = make_config(raw)
    Run(resolved).check_parts()
    return resolved


def _part(base: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return policy or teacher of a config file, or the default."""
    return base.get(key) or RunConfig.model_fields[key].default.model_dump()


def _default_tasks(name: str, settings: dict[str, Any]) -> int:
    """Return the paper's count, or that of all tasks where the settings list them."""
    kind = environment(name)
    listed = kind.fixed_tasks(env_config(name, settings))
    return kind.profile.default_tasks if listed is None else len(listed)


def _task_counts(text: str | None, names: Sequence[str]) -> dict[str, int]:
    if text is None:
        return {}
    if text.isdecimal():
        return dict.fromkeys(names, int(text))
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if not number.isdecimal():
            raise ConfigError(f"--tasks {text}: found {part!r}; expected a number, or ENV=N,ENV=N")
        if name in counts:
            raise ConfigError(f"--tasks {text}: environment {name!r} stands there twice; give it one number")
        if name not in names:
            raise ConfigError(f"--tasks {text}: environment {name!r} is not part of this build ({', '.join(names)})")
        counts[name] = int(number)
    return counts


def solver_settings(
    old: Mapping[str, Mapping[str, Any]], settings: Sequence[str], environments: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the solvers' settings of a run: the ``old`` ones of its environments, changed by ``ENV.KEY=VALUE`` texts.

    Raises:
        ConfigError: a text cannot be used.
    """
    chosen = {name: dict(options) for name, options in old.items() if name in environments}
    for text in settings:
        name, key, value = parse_setting("--solver", text)
        if name not in environments:
            known = ", ".join(environments)
            raise ConfigError(f"--solver {text}: environment {name!r} is not part of this build ({known})")
        chosen.setdefault(name, {})[key] = value
    return chosen


def parse_setting(option: str, text: str) -> tuple[str, str, Any]:
    """Read ``ENV.KEY=VALUE``; the value is JSON, or a text.

    Raises:
        ConfigError: it is written otherwise.
    """
    target, equals, value = text.partition("=")
    name, dot, key = target.partition(".")
    if not (equals and dot and name and key):
        example = "sokoban.boxes=2" if option == "--set" else "navigation.threshold=1.0"
        raise ConfigError(f"{option} {text}: expected ENV.KEY=VALUE, such as {example}")
    try:
        return name, key, json.loads(value)
    except ValueError:
        return name, key, value


def env_settings(env: str, texts: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts; a leading ``ENV.``, as in `pivot build`, may stand there.

    Raises:
        ConfigError: a text cannot be used.
    """
    chosen: dict[str, Any] = {}
    for text in texts:
        named = text if "." in text.partition("=")[0] else f"{env}.{text}"
        name, key, value = parse_setting("--set", named)
        if name != env:
            raise ConfigError(f"--set {text}: found a setting of {name}, expected one of {env}")
        chosen[key] = value
    return chosen
