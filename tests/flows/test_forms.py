"""Forms: the parameters of flows as schemas, from the one config model and the settings of all plugins."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pivot import plugins
from pivot.datasets.config import RunConfig, environment, make_config
from pivot.errors import PivotError
from pivot.flows import deployments, upkeep
from pivot.flows.deployments import report_failure, resume_killed
from pivot.flows.forms import ConfigForm, LabelChangesForm
from prefect import Flow
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.utilities.callables import parameter_schema
from pydantic import TypeAdapter

ROOT = Path(__file__).resolve().parents[2]
FILE: dict[str, Any] = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
FLOWS: dict[str, Flow[..., Any]] = {
    name: value for module in (deployments, upkeep) for name, value in vars(module).items() if isinstance(value, Flow)
}
FREE = {"habits", "config", "engine", "filters", "kwargs", "options", "actions", "failure_modes"}
"""Objects with names of their own: settings of plugins and of gymnasium environments, and filters by environment."""


def schema_of(flow: Flow[..., Any]) -> dict[str, Any]:
    """The schema of a deployment's parameters."""
    return parameter_schema(flow.fn).model_dump()


def bare_objects(schema: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Paths of objects whose fields a form does not know."""
    if isinstance(schema, list):
        return {each for item in schema for each in bare_objects(item, path)}
    if not isinstance(schema, dict):
        return set()
    below = {each for name, item in schema.items() for each in bare_objects(item, (*path, name))}
    return below | ({path} if schema.get("type") == "object" and "properties" not in schema else set())


def used(schema: dict[str, Any]) -> dict[str, Any]:
    """The parameters, with the definitions that they lead to."""
    kept, waiting = {"properties": schema["properties"]}, json.dumps(schema["properties"])
    for name in ("RunConfig", "LabelChanges", "ProbeSettings"):
        if f"#/definitions/{name}" in waiting:
            kept[name] = schema["definitions"][name]
            assert "#/definitions/" not in json.dumps(kept[name])
    return kept


@pytest.mark.parametrize("name", FLOWS)
def test_a_form_has_a_field_for_everything(name: str) -> None:
    schema = schema_of(FLOWS[name])
    unknown = bare_objects(used(schema))
    assert {path for path in unknown if not FREE & set(path)} == set()
    assert all("description" in each for each in schema["properties"].values())
    for kind in {"RunConfig", "LabelChanges"} & schema["definitions"].keys():
        assert all(each["description"] for each in schema["definitions"][kind]["properties"].values())
    Draft202012Validator.check_schema(schema)


def test_a_form_asks_for_every_setting_of_every_environment() -> None:
    fields = schema_of(FLOWS["build_dataset"])["definitions"]["RunConfig"]["properties"]
    assert fields.keys() == RunConfig.model_fields.keys()
    shown = fields["environments"]["properties"]
    assert list(shown) == plugins.names("environments")
    for name, field in shown.items():
        assert field["properties"]["settings"]["properties"].keys() == environment(name).config_type.model_fields.keys()
    parts = {each["title"] for each in fields["policy"]["anyOf"]}
    assert parts == {*plugins.names("policies"), *plugins.names("models")}


@pytest.mark.parametrize("deployment", FILE["deployments"], ids=lambda each: each["name"])
def test_the_parameters_in_the_file_fit_their_form(deployment: dict[str, Any]) -> None:
    flow = FLOWS[deployment["entrypoint"].rpartition(".")[2]]
    assert deployment["entrypoint"] == f"{flow.fn.__module__}.{flow.fn.__name__}"
    Draft202012Validator(schema_of(flow)).validate(deployment["parameters"])
    values = flow.validate_parameters(deployment["parameters"])
    if "config" in values:
        assert values["config"] == make_config(deployment["parameters"]["config"])
    assert (flow.retries, flow.timeout_seconds) == (2, 12 * 3600)
    assert report_failure in flow.on_failure_hooks
    assert resume_killed in flow.on_crashed_hooks


def test_the_file_builds_every_environment_every_night_at_the_papers_size() -> None:
    nights = [each for each in FILE["deployments"] if "nightly" in each["tags"]]
    tasks = {name: run for each in nights for name, run in each["parameters"]["config"]["environments"].items()}
    papers = [name for name in plugins.names("environments") if name != "gym"]
    assert tasks == {name: {"tasks": environment(name).profile.default_tasks} for name in papers}
    assert len({each["schedules"][0]["cron"] for each in nights}) == len(nights)
    assert len({each["parameters"]["out"] for each in nights}) == len(nights)


def test_prefect_knows_every_key_of_the_file() -> None:
    # Unknown keys are dropped without a word, so what was not read shows as missing. Anchors are ours alone.
    file = {key: value for key, value in FILE.items() if key != "definitions"}
    assert PrefectYamlModel.model_validate(file).model_dump(mode="json", by_alias=True, exclude_unset=True) == file


def test_a_form_that_is_sent_as_it_is_shown_means_what_was_asked_for() -> None:
    """A form sends every field that it shows, with its default."""
    fields = schema_of(FLOWS["build_dataset"])["definitions"]["RunConfig"]["properties"]
    sent: dict[str, Any] = {name: field["default"] for name, field in fields.items() if "default" in field}
    sent["environments"] = {name: _shown(field) for name, field in fields["environments"]["properties"].items()}
    sent["solvers"] = _shown(fields["solvers"])
    sent["environments"]["frozenlake"]["tasks"] = 3
    Draft202012Validator(schema_of(FLOWS["build_dataset"])).validate({"config": sent, "out": "x"})
    config = TypeAdapter(ConfigForm).validate_python(sent)
    assert config == make_config({"environments": {"frozenlake": {"tasks": 3}}})
    sent["environments"]["navigation"]["tasks"] = 2
    sent["solvers"]["navigation"]["threshold"] = 1.0
    changed = TypeAdapter(ConfigForm).validate_python(sent)
    assert changed.solvers["navigation"]["threshold"] == 1.0
    assert list(changed.solvers) == ["navigation"]


def _shown(field: dict[str, Any]) -> Any:
    if "default" in field and not field.get("properties"):
        return field["default"]
    return {name: _shown(each) for name, each in field["properties"].items()}


def test_what_nobody_could_fill_in_is_refused_as_ever() -> None:
    for wrong in ({"environments": {"chess": {"tasks": 1}}}, {"environments": {"sokoban": {"tasks": 1, "sise": 2}}}):
        with pytest.raises((PivotError, ValueError)):
            TypeAdapter(ConfigForm).validate_python(wrong)
        assert not Draft202012Validator(schema_of(FLOWS["build_dataset"])).is_valid({"config": wrong, "out": "x"})
    with pytest.raises(ValueError, match="environments"):
        TypeAdapter(ConfigForm).validate_python({"environments": {"sokoban": {"tasks": 0}}})
    assert TypeAdapter(LabelChangesForm).validate_python({}).model_dump(exclude_none=True) == {}


def test_flows_need_no_command_line() -> None:
    code = "import sys, pivot.flows.deployments; print([name for name in sys.modules if name.startswith('pivot.cli')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
