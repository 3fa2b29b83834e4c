"""Options and arguments that several commands have in common."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..core import plugins
from ..core.errors import ConfigError, PivotError
from ..core.storage import Address, parse_address


def address_of(label: str, text: str) -> Address:
    """Read a path, or the address of an object store.

    Raises:
        ConfigError: it is empty, or an address that cannot be used.
    """
    if not text:
        raise ConfigError(f"{label}: found '', expected a path")
    return parse_address(text)


def _address_field(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value:
        raise ValueError("found '', expected a path")
    try:
        return parse_address(value)
    except PivotError as error:
        raise ValueError(str(error)) from error


def _path_field(value: Any) -> Any:
    if value == "":
        raise ValueError("found '', expected a path")
    return value


AddressField = Annotated[Address, BeforeValidator(_address_field)]
"""A field of a model: a folder, or the address of an object store."""
PathField = Annotated[Path, BeforeValidator(_path_field)]
"""A field of a model: a file or folder of this machine."""


def _output_field(path: Path) -> Path:
    from ..datasets.store.location import enclosing_store  # noqa: PLC0415 - the help needs no store

    if (store := enclosing_store(path / "file")) is not None:
        raise ValueError(f"found {str(path)!r}, in the store {store}; expected a place outside of stores")
    return path


OutputField = Annotated[PathField, AfterValidator(_output_field)]
"""A field of a model: a file or folder to write, not in a store, whose verification would then fail."""


def _picture_field(path: Path) -> Path:
    if path.suffix.lower() not in ("", ".png") or path.is_dir():
        raise ValueError(f"found {str(path)!r}, expected a file whose name ends in .png")
    if not path.parent.is_dir():
        raise ValueError(f"found {str(path)!r}, but the folder {path.parent} does not exist; choose another")
    return path


PictureField = Annotated[OutputField, AfterValidator(_picture_field)]
"""A field of a model: a PNG file to write."""


class Options(BaseModel):
    """Options of a command that do not affect its results: output folder, and how the command runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def registered(group: str, name: str) -> str:
    """Return the name of a plugin.

    Raises:
        ValueError: none of the group has that name.
    """
    if name not in plugins.names(group):
        raise ValueError(f"found {name!r}, expected one of {', '.join(plugins.names(group))}")
    return name


LOCAL = "local"
"""Engine of this machine."""
MOST_PER_CORE = 64
"""Worker processes per core; more are a mistyped number, and would take all memory."""


class WorkerOptions(Options):
    """Options that choose the processes or machines of a command; see docs/engines.md."""

    workers: int = Field(default=0, ge=0)
    """Worker processes, or with a cluster, simultaneous shards; 0 for one per core."""
    engine: str = LOCAL
    """Engine that runs the shards: local (processes of this machine), ray, dask, or another installed one."""
    address: str = ""
    """Cluster of the engine, such as HOST:6379 or ray://HOST:10001 for ray, tcp://HOST:8786 for dask; by default
    workers are started on this machine for the run."""

    @field_validator("engine")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        return registered("engines", name)

    @field_validator("address")
    @classmethod
    def _is_of_a_cluster(cls, address: str, info: ValidationInfo) -> str:
        if address and info.data.get("engine") == LOCAL:
            raise ValueError(
                f"found {address!r}, but the engine {LOCAL} has no cluster; name one that has with --engine"
            )
        return address

    @model_validator(mode="after")
    def _fits_this_machine(self) -> "WorkerOptions":
        most = MOST_PER_CORE * (os.cpu_count() or 1)
        if self.engine == LOCAL and self.workers > most:
            raise ValueError(f"--workers: found {self.workers}, expected at most {most}, {MOST_PER_CORE} per core")
        return self
