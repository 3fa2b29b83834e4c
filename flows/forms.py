"""JSON schemas of the parameters of flows, which Prefect's pages turn into forms.

The config model is the type of a parameter. For settings that plugins declare (of an environment, of a policy) its own
schema only says "an object"; :class:`PluginFields` inserts the plugin's typed fields, so that a form has a field for
every setting, with its help, default and range. A form sends every field it shows, also of environments that were not
chosen: these are removed, and the config model validates the rest.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from .. import plugins
from ..datasets.config import PartConfig, RunConfig
from ..errors import PluginError
from ..labeling.action_log import LogDetail
from ..labeling.base import GuidanceSource
from ..labeling.vocabulary import Vocabulary


class PluginFields:
    """An annotation that inserts the typed settings of every installed plugin into the schema of a config."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the annotated model, completed."""
        schema = handler(core)
        fields = handler.resolve_ref_schema(schema)["properties"]
        complete = {"environments": _environments, "policy": _policy, "teacher": _writer, "solvers": _solvers}
        for name in complete.keys() & fields.keys():
            fields[name] = _about(fields[name]) | complete[name](fields[name], handler)
        for name, field in fields.items():
            field.setdefault("description", RunConfig.model_fields[name].description)
        return schema


class LabelChanges(BaseModel):
    """Fields of a run config that change, as described there; fields that are None stay."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    teacher: PartConfig | None = None
    split: Literal["task", "episode"] | None = None
    target_vocabulary: Vocabulary | None = None
    include_infeasible: bool | None = None
    solvers: dict[str, dict[str, Any]] | None = None
    guidance: GuidanceSource | None = None
    filters: dict[str, tuple[str, ...]] | None = None
    log: LogDetail | None = None


def _without_unused(sent: Any) -> Any:
    """Remove environments without levels from a form's answer, and solver settings that are unused or unchanged.

    A value of another shape is returned as it is; the model refuses it.
    """
    if not isinstance(sent, dict) or not isinstance(sent.get("environments"), dict):
        return sent
    runs = {name: run for name, run in sent["environments"].items() if not isinstance(run, dict) or run.get("tasks", 1)}
    solvers = sent.get("solvers")
    if isinstance(solvers, dict):
        usual = {name: kind().model_dump(mode="json") for name, kind in _settings("solvers").items()}
        solvers = {name: each for name, each in solvers.items() if name in runs and each != usual.get(name)}
        sent = sent | {"solvers": solvers}
    return sent | {"environments": runs}


ConfigForm = Annotated[RunConfig, BeforeValidator(_without_unused), PluginFields()]
"""A run config, with a form for it."""
LabelChangesForm = Annotated[LabelChanges, PluginFields()]
"""Changes of labels, with a form for them."""


def _about(field: JsonSchemaValue) -> JsonSchemaValue:
    return {key: field[key] for key in ("description", "default", "title") if key in field}


def _environments(field: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """Return a field for each environment: its number of levels, and its settings."""
    run = handler.resolve_ref_schema(field["additionalProperties"])["properties"]
    levels = {"type": "integer", "minimum": 0, "maximum": run["tasks"]["maximum"], "default": 0, "title": "tasks"}
    tasks = levels | {"description": "Levels; 0 leaves the environment out."}
    entries: dict[str, JsonSchemaValue] = {}
    for name, kind in _settings("environments").items():
        settings = _whole(kind, handler) | _about(run["settings"])
        about = {"title": name, "description": f"How much of {name} is rolled out, and with which settings."}
        entries[name] = about | _object({"tasks": tasks, "settings": settings})
    return _object(entries) | {"minProperties": field["minProperties"]}


def _policy(field: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    return {"anyOf": [*_parts("policies", handler), *_parts("models", handler), *_nothing(field)]}


def _writer(field: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    return {"anyOf": [*_parts("writers", handler), *_parts("models", handler), *_nothing(field)]}


def _parts(group: str, handler: GetJsonSchemaHandler) -> list[JsonSchemaValue]:
    """Offer every part of a group with its own options, and a model with its service."""
    choices: list[JsonSchemaValue] = []
    for name, kind in _settings(group).items():
        fields = {"name": {"const": name, "default": name, "type": "string", "title": "name"}}
        fields["options"] = _whole(kind, handler) | {"title": "options"}
        if group == "models":
            fields["service"] = _whole(plugins.load(group, name).service_type, handler) | {"title": "service"}
        choices.append({"title": name} | _object(fields, "name"))
    return choices


def _solvers(field: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    kinds = {name: kind for name, kind in _settings("solvers").items() if kind.model_fields}
    entries = _object({name: _whole(kind, handler) | {"title": name} for name, kind in kinds.items()})
    nothing = _nothing(field)
    return {"anyOf": [entries | {"title": "solvers"}, *nothing]} if nothing else entries


def _nothing(field: JsonSchemaValue) -> list[JsonSchemaValue]:
    """Return the choice to leave a field out, if it has one."""
    return [each for each in field.get("anyOf", ()) if each.get("type") == "null"]


def _object(fields: dict[str, Any], *required: str) -> JsonSchemaValue:
    """Return the schema of an object without other fields."""
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def _whole(kind: type[BaseModel], handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """Return the schema of a plugin's settings; shared definitions are references."""
    return dict(handler.resolve_ref_schema(handler(kind.__pydantic_core_schema__)))


def _settings(group: str) -> dict[str, type[BaseModel]]:
    """Return the settings of every plugin of a group that can be loaded; `pivot doctor` reports the others."""
    kinds: dict[str, type[BaseModel]] = {}
    for name in plugins.names(group):
        try:
            kinds[name] = plugins.load(group, name).config_type
        except PluginError:
            kinds.pop(name, None)  # a broken package must not break the form
    return kinds
