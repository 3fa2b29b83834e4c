"""Types, recipes and checks that the configs of both training stages share, and the comparison with a stored config.

A config is the one declaration of its settings: type, default, range, meaning, place in the help (:func:`setting`).
Command-line options, ``--config
FILE``, the help and ``docs/reference/configuration.md`` come from it. Everything in it is resolved before a run starts.
``OUT/run.json`` holds the fields that describe the run; fields declared with ``exclude=True`` say what one call does
(where results go, whether it resumes) and are not stored.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError

from ..core.errors import TrainingError
from ..core.plugins import Settings, explain

EXTRA = "train"
"""Extra of PIVOT that installs what training needs."""

Precision = Literal["auto", "bf16", "fp32"]
Schedule = Literal["constant", "linear", "cosine"]

AnyConfig = TypeVar("AnyConfig", bound=Settings)

RECIPES = Path(__file__).with_name("recipes")
RECIPE_SUFFIX = ".yaml"


def setting(
    default: Any = ..., *, panel: str = "", added: bool = False, by_rounding: bool = False, **checks: Any
) -> Any:
    """Declare a field of a config.

    Args:
        default: its default; leave it out with ``default_factory``.
        panel: heading in the help of the command; empty for ``Options``.
        added: whether a default of it stays out of the ids of episodes, and so of their random streams.
        by_rounding: whether it changes results by rounding alone, so that it may differ when a run is resumed.
        checks: further arguments of ``pydantic.Field``, such as ``ge=1``.
    """
    about: dict[str, Any] = {"panel": panel, "added": added, "by_rounding": by_rounding}
    stated = {name: value for name, value in about.items() if value}
    if default is not ...:
        checks["default"] = default
    return Field(json_schema_extra=stated or None, **checks)


def fields_marked(kind: type[Settings], mark: str) -> tuple[str, ...]:
    """Return the fields that :func:`setting` declares as ``added`` or ``by_rounding``."""
    extras = {name: field.json_schema_extra for name, field in kind.model_fields.items()}
    return tuple(name for name, extra in extras.items() if isinstance(extra, dict) and extra.get(mark))


class Shape(Settings):
    """Architecture of a model, for an estimate of memory where the model itself cannot be loaded."""

    model_type: str
    """Model type in the transformers library, such as ``qwen2_5_vl``."""
    text: dict[str, Any]
    """Fields of ``text_config`` of the model."""
    vision: dict[str, Any]
    """Fields of ``vision_config`` of the model."""
    tie_word_embeddings: bool = True
    """Whether the output head shares the weights of the input embeddings."""


def recipes(folder: Path = RECIPES) -> tuple[str, ...]:
    """Return the names of the shipped recipes of a stage; by default those of Stage I."""
    return tuple(name.removesuffix(RECIPE_SUFFIX) for name in sorted(next(os.walk(folder))[2]))


def recipe_fields(name: str, folder: Path = RECIPES) -> dict[str, Any]:
    """Return the settings in a recipe, given the name of a shipped one (in ``folder``) or the path of a YAML file.

    Raises:
        TrainingError: the recipe does not exist, or does not hold settings.
    """
    shipped = recipes(folder)
    path = folder / f"{name}{RECIPE_SUFFIX}" if name in shipped else Path(name)
    if not path.exists():
        raise TrainingError(f"no recipe {name!r}, expected a file or one of: {', '.join(shipped)}")
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())  # messages of YAML have several lines
        raise TrainingError(f"recipe {name} cannot be read: {reason}; expected lines such as `lr: 2.0e-6`") from error
    if not isinstance(fields, dict):
        raise TrainingError(f"recipe {name} holds a {type(fields).__name__}, expected settings such as `lr: 2.0e-6`")
    return fields


def checked(kind: type[AnyConfig], fields: Mapping[str, Any]) -> AnyConfig:
    """Check the fields of a config and complete them with their defaults.

    Raises:
        TrainingError: a setting is unknown, missing, or cannot be used.
    """
    try:
        return kind.model_validate(dict(fields))
    except ValidationError as error:
        raise TrainingError(explain(error, "training setting ", kind)) from error
