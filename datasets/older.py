"""Read the config and tables of an older version, which may have other fields and columns.

Whether the old rows still have the same meaning is decided by a replay, in :mod:`.proof.rederive`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from ..errors import ConfigError, PivotError, StoreError
from ..models.base import Role
from ..plugins import STORED
from ..storage import Address, FileRecord, open_storage
from .config import EnvRun, PartConfig, RunConfig, environment, make_config, part_type, solver_type
from .formats import migrate_hint
from .parquet import refuse_bombs
from .sizes import read_rows
from .tables import Rows


def readable_config(raw: Mapping[str, Any]) -> tuple[RunConfig, list[str]]:
    """Return the config in ``run.json`` of any version, and the settings that this version does not know.

    Later fields get their defaults.

    Raises:
        ConfigError, PluginError: a setting that this version knows cannot be used.
    """
    left_out: list[str] = []

    def checked(values: Mapping[str, Any], kind: type[BaseModel], where: str) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise ConfigError(f"the config in run.json: found {values!r} at {where or 'its top'}, expected an object")
        fields = values if kind.model_config.get("extra") == "allow" else kind.model_fields
        left_out.extend(f"{where}{name}={value!r}" for name, value in values.items() if name not in fields)
        return {name: value for name, value in values.items() if name in fields}

    config = checked(raw, RunConfig, "")
    environments: dict[str, Any] = {}
    for name, chosen in config.get("environments", {}).items():
        env = checked(chosen, EnvRun, f"{name}.")
        env["settings"] = checked(env.get("settings", {}), environment(name).config_type, f"{name}.")
        environments[name] = env
    config["environments"] = environments
    solvers = config.get("solvers", {}).items()
    config["solvers"] = {env: checked(each, solver_type(env).config_type, f"solver {env}.") for env, each in solvers}
    roles: dict[str, Role] = {"policy": "student", "teacher": "teacher"}
    for name, role in roles.items():
        if name in config:
            part = checked(config[name], PartConfig, f"{name}.")
            kind = part_type(role, part["name"])
            part["options"] = checked(part.get("options", {}), kind.config_type, f"{name}.")
            if "service" in part and hasattr(kind, "service_type"):
                part["service"] = checked(part["service"], kind.service_type, f"{name}.")
            config[name] = part
    return make_config(config, STORED), left_out


def hint_for(raw: Mapping[str, Any], root: object) -> str:
    """Return a hint to migrate, if a config only has fields of another version; else nothing."""
    try:
        _, left_out = readable_config(raw)
    except (PivotError, AttributeError, KeyError, TypeError):
        return ""
    return f"; another version wrote it: {migrate_hint(root)}" if left_out else ""


@dataclass(frozen=True)
class OlderFiles:
    """Files of a finished store of any version; small, so that it can be sent to a worker."""

    root: Address
    files: Mapping[str, FileRecord]
    """Their entries in the manifest."""

    def rows(self, name: str) -> Rows:
        """Return the rows of a table's file with the columns that they have; none if the manifest lists no such file.

        Raises:
            StoreError: the file is missing, damaged, or not what the manifest lists.
        """
        storage = open_storage(self.root)
        if name not in self.files:
            return []
        if storage.record(name) != self.files[name]:
            raise StoreError(f"{storage.address(name)} is not the file that the manifest lists; restore it from a copy")
        try:
            with storage.open(name) as stream, pq.ParquetFile(stream) as file:
                refuse_bombs(storage.address(name), file, self.files[name].bytes)
                return read_rows(storage.address(name), file, self.files[name].bytes, None).to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StoreError(f"{storage.address(name)} cannot be read as Parquet ({error})") from error
