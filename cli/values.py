"""Values for configs by key, each with the flag or file key that set it, so that messages can name it."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from ..core.errors import ConfigError
from ..core.lazy import near_match
from ..core.plugins import expectation
from ..core.storage import Address, open_storage

Keys = tuple[str, ...]
"""Path of a value in a config, from the outermost key."""
Model = TypeVar("Model", bound=BaseModel)


class RunFile(str):
    """Name of a ``run.json``, whose values come from the maker of the store and not from the user."""

    __slots__ = ()


class Values:
    """A tree of plain values, and the origin of each: ``--split``, or ``run.yaml: split``."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self._origins: dict[Keys, str] = {}
        self._run_files: dict[Keys, RunFile] = {}

    def put(self, keys: Keys, value: Any, origin: str) -> None:
        """Set one value; missing mappings on its path are created."""
        branch = self.data
        for key in keys[:-1]:
            if not isinstance(branch.get(key), dict):
                branch[key] = {}
            branch = branch[key]
        branch[keys[-1]] = value
        self._origins = {each: name for each, name in self._origins.items() if each[: len(keys)] != keys}
        self._origins[keys] = origin
        self._run_files = {each: file for each, file in self._run_files.items() if each[: len(keys)] != keys}

    def put_once(self, keys: Keys, value: Any, origin: str) -> None:
        """Set one value of a mapping by a flag.

        Raises:
            ConfigError: the same flag has set it before.
        """
        if self._origins.get(keys) == origin:
            raise ConfigError(f"{origin}: found {self.get(keys)!r} and {value!r}, expected one value")
        self.put(keys, value, origin)

    def put_all(self, data: Mapping[str, Any], where: str, keys: Keys = ()) -> None:
        """Set every value of a mapping; ``where`` names its file."""
        for key, value in data.items():
            path = (*keys, str(key))
            if isinstance(value, Mapping) and value:
                self.put_all(value, where, path)
            else:
                self.put(path, value, f"{where}: {'.'.join(path)}")
                if isinstance(where, RunFile):
                    self._run_files[path] = where

    def run_file(self, keys: Keys) -> RunFile | None:
        """Return the ``run.json`` that a value, part of it, or its mapping comes from; None if there is none."""
        files = (file for each, file in self._run_files.items() if each[: len(keys)] == keys[: len(each)])
        return next(files, None)

    def get(self, keys: Keys) -> Any:
        """Return a value, or None."""
        branch: Any = self.data
        for key in keys:
            branch = branch.get(key) if isinstance(branch, dict) else None
        return branch

    def _holds(self, keys: Keys) -> bool:
        """Whether there is a value, or a list or text that an index of the path points into."""
        branch: Any = self.data
        for key in keys:
            if not isinstance(branch, dict):
                return True
            if key not in branch:
                return False
            branch = branch[key]
        return True

    def origin(self, keys: Keys) -> str | None:
        """Return the flag or key that set a value or its mapping; None for a default."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self._origins:
                name = self._origins[keys[:length]]
                return name if name.startswith("--") else name + "".join(f".{key}" for key in keys[length:])
        return None

    def _only_origin(self, keys: Keys) -> str | None:
        """Return what set the only value below ``keys``; None for several or none, and for a whole config."""
        origins = [name for each, name in self._origins.items() if keys and each[: len(keys)] == keys]
        return origins[0] if len(origins) == 1 else None

    def read(self, kind: type[Model], keys: Keys = (), name: str = "") -> Model:
        """Check the values below ``keys`` and complete them with defaults; ``name`` is the label of a default.

        Raises:
            ConfigError: a value is unknown, missing, or cannot be used; the message names its flag or its key.
        """
        values = self.get(keys) if keys else self.data
        try:
            return kind.model_validate({} if values is None else values)
        except ValidationError as error:
            raise ConfigError(self.explain(error, kind, keys, name)) from error

    def explain(self, error: ValidationError, kind: type[BaseModel], keys: Keys = (), name: str = "") -> str:
        """Return an error in one line: the flag or key, what was found, what was expected."""
        problem = error.errors()[0]
        path = tuple(str(part) for part in problem["loc"])
        is_default = problem["type"] != "missing" and not self._holds((*keys, *path))
        origin = self.origin((*keys, *path)) if path else self._only_origin(keys)
        label = (None if is_default else origin) or (name + ".".join(path)).rstrip(".")
        if problem["type"] == "extra_forbidden":
            return unknown_key(label, path[-1], kind.model_fields if len(path) == 1 else None)
        if problem["type"] == "missing":
            return f"{label} is missing; it has no default"
        if problem["type"] == "value_error":  # a validator's own words
            why = str(problem.get("ctx", {}).get("error"))
            return f"{label}: {why}" if label else why
        return f"{label}: found {problem['input']!r}, expected {expected(problem)}"


def expected(problem: Mapping[str, Any]) -> str:
    """Return what an error of pydantic's validation expected, with choices in the user's spelling."""
    text = expectation(problem)
    return text.replace("'", "").replace(" or ", ", ") if problem["type"] in ("literal_error", "enum") else text


def unknown_key(label: str, key: str, keys: Iterable[str] | None) -> str:
    """Return the message for a key that does not exist, with its nearest neighbour; None for unknown neighbours."""
    message = f"{label}: unknown setting"
    if keys is None:
        return message
    names = list(keys)
    return f"{message}{near_match(key, names) or ';'} known: {', '.join(names) or 'none'}"


def setting_of(text: str) -> Any:
    """Read the value of ``KEY=VALUE``: JSON, or a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_file(path: Address) -> dict[str, Any]:
    """Read a config file: YAML, TOML, JSON, or the ``run.json`` of a store or a training run.

    Raises:
        ConfigError: it cannot be read, or does not hold a mapping.
    """
    try:
        local = isinstance(path, Path)
        text = (path.read_bytes() if local else open_storage(path.parent).read_bytes(path.name)).decode()
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}; give a YAML, TOML or JSON file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config: {path} is not a text file in UTF-8; give a YAML, TOML or JSON file") from error
    language, read = _LANGUAGES.get(Path(path.name).suffix.lower(), ("YAML", yaml.safe_load))
    try:
        data = read(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"--config: {path} is not valid {language}: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"--config: {path} holds {_kind_of(data)}; expected keys and values, such as seed: 1")
    return {str(key): value for key, value in data.items()}


_LANGUAGES: Mapping[str, tuple[str, Any]] = {".json": ("JSON", json.loads), ".toml": ("TOML", tomllib.loads)}


def _kind_of(data: Any) -> str:
    return "nothing" if data is None else f"a {type(data).__name__}"
