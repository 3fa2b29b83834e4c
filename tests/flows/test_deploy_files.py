"""The files of docs/deploy/ name what exists; `make test WHAT=deploy` adds the checks of the tools."""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import typer.main
import yaml
from pivot.cli import app
from pivot.flows.metrics import RunMetrics
from prefect.settings import Settings
from prefect.settings.legacy import _get_settings_fields

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "docs/deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text(encoding="utf-8"))
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "compose/grafana/dashboards/pivot.json").read_text(encoding="utf-8"))
MANIFESTS: list[dict[str, Any]] = [
    document
    for name in ("postgres.yaml", "pivot.yaml")
    for document in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text(encoding="utf-8"))
]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
FOREIGN = {"HEALTH_URL", "PYTHONUNBUFFERED", "PATH", "POSTGRES_PASSWORD", "AWS_ALLOW_HTTP", "MC_HOST_store"}
"""Variables of the files themselves, of Python, and of obstore."""


def unit_of(path: Path) -> dict[str, dict[str, list[str]]]:
    """Return the settings of a systemd unit, each with its values in order."""
    sections: dict[str, dict[str, list[str]]] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            sections.setdefault(name, {}).setdefault(key, []).append(value)
    return sections


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments."""
    joined = re.sub(r"\\\n\s*", " ", "\n".join([line for line in text.splitlines() if not line.startswith("#")]))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


DOCKERFILE = instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))


def check_command(words: list[str]) -> None:
    """Parse a command of `pivot`, `prefect` or a module as the program itself does, without running it."""
    program, *arguments = words
    match Path(program).name:
        case "pivot":
            typer.main.get_group(app).commands[arguments[0]].make_context(arguments[0], arguments[1:])
        case "prefect":
            from prefect.cli._app import _app

            called, bound, _ = _app.parse_args(arguments, exit_on_error=False, print_error=False)
            assert called.__module__.startswith("prefect.cli")
            assert bound.arguments or len(arguments) == 2
        case "python":
            if "-m" in arguments:
                importlib.import_module(arguments[arguments.index("-m") + 1])
            else:
                compile(arguments[arguments.index("-c") + 1], "command", "exec")
        case _:
            raise AssertionError(f"unknown program {program}")


def containers() -> Iterator[dict[str, Any]]:
    for manifest in MANIFESTS:
        if manifest["kind"] == "StatefulSet":
            yield from manifest["spec"]["template"]["spec"]["containers"]


def commands() -> Iterator[list[str]]:
    """Yield every command of PIVOT's image, of the manifests and of the units."""
    for service in COMPOSE["services"].values():
        if service["image"].startswith("pivot:"):
            yield service["command"]
    for name, rest in DOCKERFILE:
        if name in ("CMD", "HEALTHCHECK"):
            yield json.loads(rest[rest.index("[") :])
    for container in containers():
        if container["image"] == "pivot":
            yield container["args"]
            if "exec" in container.get("livenessProbe", {}):
                yield container["livenessProbe"]["exec"]["command"]
    for unit in UNITS:
        service = unit_of(unit)["Service"]
        yield from map(shlex.split, [*service.get("ExecStartPre", []), *service["ExecStart"]])


COMMANDS = list(commands())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_exists_with_its_flags(words: list[str]) -> None:
    assert len(COMMANDS) == 9
    check_command(words)


def variables() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of every environment variable."""
    for service in COMPOSE["services"].values():
        if service["image"].startswith("pivot:"):
            yield from (("compose.yaml", name) for name in service["environment"])
    for container in containers():
        if container["image"] == "pivot":
            yield from (("pivot.yaml", each["name"]) for each in container["env"])
    for name, rest in DOCKERFILE[[name for name, _ in DOCKERFILE].index("USER") - 1 :]:
        if name == "ENV":
            yield from (("Dockerfile", word.partition("=")[0]) for word in shlex.split(rest))
    for name in re.findall(r"^#? ?([A-Z_]+)=", (DEPLOY / "systemd/pivot.env.example").read_text(), flags=re.MULTILINE):
        yield "pivot.env.example", name
    for unit in UNITS:
        for value in unit_of(unit)["Service"].get("Environment", []):
            yield unit.name, value.partition("=")[0]


def test_every_variable_is_read_by_a_program() -> None:
    page = (DEPLOY.parent / "reference/configuration.md").read_text(encoding="utf-8")
    ours = set(re.findall(r"`([A-Z_]+)`", page.partition("## Environment variables\n")[2]))
    prefect = {*_get_settings_fields(Settings)} | {"PREFECT_HOME"}
    named = list(variables())
    files = "compose.yaml pivot.yaml Dockerfile pivot.env.example pivot-server.service"
    assert {file for file, _ in named} == {*files.split()}
    assert [each for each in named if each[1] not in ours | prefect | FOREIGN] == []
    assert "PREFECT_SERVER_API_AUTH_STRING" in prefect and "PREFECT_SERVER_API_AUTH" not in prefect


def test_the_dashboard_shows_every_gauge_and_nothing_else() -> None:
    declared = set(re.findall(r"^# TYPE (\S+) gauge$", RunMetrics("nightly-sokoban", 1.0).text(), flags=re.MULTILINE))
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    for expression in expressions:
        promql.parse(expression.replace("$deployment", "nightly-.*"))
    assert {name for each in expressions for name in re.findall(r"\bpivot_\w+", each)} == declared
    assert "pivot_run_active" in str(DASHBOARD["templating"])
    assert {
        name
        for panel in DASHBOARD["panels"]
        for each in panel["targets"]
        for name in re.findall(r"{{(\w+)}}", each["legendFormat"])
    } <= {"deployment", "environment", "what", "role", "kind", "stage", "alertname"}


def test_the_services_of_the_compose_file_fit_together() -> None:
    services, example = COMPOSE["services"], (DEPLOY / "compose/env.example").read_text(encoding="utf-8")
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= services.keys(), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to other machines"
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (DEPLOY / "compose" / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], (
                mount
            )
        assert service["image"].rpartition(":")[2] != "latest"
        if "condition" in str(service.get("depends_on", "")):
            for needed, how in service["depends_on"].items():
                # PIVOT's image has a health check.
                assert how["condition"] != "service_healthy" or "healthcheck" in services[needed] or needed == "server"
    required = set(re.findall(r"\$\{(\w+):\?", yaml.safe_dump(COMPOSE)))
    assert required == set(re.findall(r"^(\w+)=$", example, flags=re.MULTILINE))
    prometheus = yaml.safe_load((DEPLOY / "compose/prometheus.yml").read_text())
    assert set(prometheus["rule_files"]) <= {mount.split(":")[1] for mount in services["prometheus"]["volumes"]}
    assert (DEPLOY / "compose/../../../flows/alerts.yaml").resolve() == ROOT / "flows/alerts.yaml"
    for job in prometheus["scrape_configs"]:
        for target in job["static_configs"][0]["targets"]:
            assert target.split(":")[0] in services


def test_the_image_has_two_stages_and_runs_without_privileges() -> None:
    names = [name for name, _ in DOCKERFILE]
    assert names.count("FROM") == 2
    user = names.index("USER")
    assert not DOCKERFILE[user][1].startswith(("0", "root"))
    assert "RUN" not in names[user:]
    extras = next(rest.partition("=")[2] for name, rest in DOCKERFILE if name == "ARG" and rest.startswith("EXTRAS"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert {"HEALTHCHECK", "ENTRYPOINT", "CMD"} <= {*names}
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    packages = {
        each.split(".")[1]
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
        if each.startswith("pivot.")
    }
    assert not packages & set(ignored), "the wheel needs these folders"


def test_the_manifests_fit_together() -> None:
    kustomization = (DEPLOY / "kubernetes/kustomization.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(kustomization)["resources"] == ["postgres.yaml", "pivot.yaml"]
    secrets = set(re.findall(r"--from-literal=([\w-]+)=", kustomization))
    for manifest in MANIFESTS:
        if manifest["kind"] != "StatefulSet":
            continue
        template, claims = manifest["spec"]["template"], manifest["spec"]["volumeClaimTemplates"]
        volumes = {
            each["name"]
            for each in [*template["spec"].get("volumes", []), *({"name": c["metadata"]["name"]} for c in claims)]
        }
        assert template["spec"]["securityContext"]["runAsNonRoot"]
        assert manifest["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        for container in template["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            for each in container.get("env", ()):
                if "valueFrom" in each:
                    assert each["valueFrom"]["secretKeyRef"]["key"] in secrets
            ports = {port["name"] for port in container.get("ports", ())}
            for probe in (container.get("startupProbe"), container.get("livenessProbe")):
                assert not probe or "httpGet" not in probe or probe["httpGet"]["port"] in ports
    selectors = {m["metadata"]["name"]: m["spec"]["selector"] for m in MANIFESTS if m["kind"] == "Service"}
    assert selectors.keys() == {m["spec"]["serviceName"] for m in MANIFESTS if m["kind"] == "StatefulSet"}


# With tools


def _tool(name: str) -> str:
    path = shutil.which(name, path=f"{ROOT / '.venv/deploy/bin'}:/usr/local/bin:/usr/bin:/bin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def _run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)


@pytest.mark.deploy
def test_docker_compose_resolves_the_file_and_the_schema_accepts_it(tmp_path: Path) -> None:
    compose = _tool("docker-compose")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    file = DEPLOY / "compose/compose.yaml"
    missing = _run(compose, "--file", file, "config", "--quiet", env=environment)
    assert "is missing a value: set it in .env" in missing.stderr  # the package's wrapper always exits with 0
    passwords = dict.fromkeys(("POSTGRES_PASSWORD", "PREFECT_PASSWORD", "MINIO_PASSWORD", "GRAFANA_PASSWORD"), "x")
    resolved = _run(compose, "--file", file, "config", "--format", "json", env=environment | passwords)
    assert resolved.stderr == ""
    assert json.loads(resolved.stdout)["services"].keys() == COMPOSE["services"].keys()
    check = _tool("check-jsonschema")
    assert _run(check, "--builtin-schema", "vendor.compose-spec", file).returncode == 0
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(file.read_text().replace("depends_on:", "depend_on:"))
    assert _run(check, "--builtin-schema", "vendor.compose-spec", wrong).returncode == 1


@pytest.mark.deploy
def test_hadolint_accepts_the_dockerfile(tmp_path: Path) -> None:
    hadolint = _tool("hadolint")
    done = _run(hadolint, DEPLOY / "Dockerfile")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "Dockerfile"
    wrong.write_text((DEPLOY / "Dockerfile").read_text().replace("USER 10001:10001\n", "USER root\n"))
    assert "DL3002" in _run(hadolint, wrong).stdout


@pytest.mark.deploy
def test_the_manifests_are_valid_for_kubernetes(tmp_path: Path) -> None:
    built = _run(_tool("kubectl"), "kustomize", DEPLOY / "kubernetes")
    assert built.returncode == 0, built.stderr
    assert "image: registry.example.org/pivot:0.2.0" in built.stdout
    validate, file = _tool("kubernetes-validate"), tmp_path / "all.yaml"
    file.write_text(built.stdout)
    done = _run(validate, "--strict", file)
    assert done.returncode == 0, done.stdout + done.stderr
    file.write_text(built.stdout.replace("readOnlyRootFilesystem:", "readOnlyRootFs:"))
    assert _run(validate, "--strict", file).returncode != 0


@pytest.mark.deploy
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = _tool("systemd-analyze")
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/pivot/bin", str(ROOT / ".venv/bin")))
    units = [tmp_path / unit.name for unit in UNITS]
    done = _run(analyze, "verify", *units)
    assert (done.returncode, done.stderr) == (0, "")
    strict = _run(analyze, "security", "--offline=yes", "--threshold=25", *units)
    assert strict.returncode == 0, strict.stdout
    units[0].write_text(units[0].read_text().replace("ProtectSystem=", "ProtectSytem="))
    assert "Unknown key 'ProtectSytem'" in _run(analyze, "verify", *units).stderr


@pytest.mark.deploy
def test_the_image_installs_what_its_commands_need(tmp_path: Path) -> None:
    """Run the build stage's installation in a fresh environment, from the files that the build sends."""
    source = tmp_path / "src"
    ignored = [line.strip("*/") for line in (DEPLOY / "Dockerfile.dockerignore").read_text().split()]
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*ignored, "*.egg-info"))
    (install,) = (rest for name, rest in DOCKERFILE if name == "RUN" and "pip install" in rest)
    script = install.replace("/opt/pivot", str(tmp_path / "pivot")).replace("/src", str(source))
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in ("HOME", "PATH")}
    done = _run("sh", "-c", script, env={"EXTRAS": "openai,cloud"} | pip)
    assert done.returncode == 0, done.stderr
    said = _run(tmp_path / "pivot/bin/pivot", "deploy", "--help", cwd=tmp_path)
    assert "--work" in said.stdout, said.stderr
    missing = _run(tmp_path / "pivot/bin/python", "-c", "import openai, obstore, s3fs, asyncpg", cwd=tmp_path)
    assert missing.returncode == 0, missing.stderr
