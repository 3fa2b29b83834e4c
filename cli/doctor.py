"""``pivot doctor``: what is installed, what is missing, and how to get it."""

import asyncio
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.text import Text

from ..core import plugins
from ..core.errors import ConfigError, PivotError, PluginError
from ..core.plugins import read_settings
from ..core.version import __version__
from ..flows.engines.local import available_cores
from ..models.address import KEY_VARIABLE, api_key, bare_url
from ..models.base import Sampling
from ..models.extras import install_line, installed
from ..models.openai import OpenAIBackend
from ..models.openai.backend import OpenAIOptions
from ..models.preflight import PreflightModel
from ..models.service import Service
from ..rollouts.policies import ModelPolicy
from ..rollouts.policies.example import example_turn
from .console import out, show_table, styled
from .from_config import Flag, Form, from_config
from .options import Options
from .settings_help import show_settings

OK, MISSING, BROKEN = styled(("ok", "green")), styled(("missing", "yellow")), styled(("broken", "red"))

OPTIONAL = (
    ("openai", "openai", "models behind a server", install_line("openai")),
    ("torch", "torch", "models in this process, training", install_line("transformers")),
    ("transformers", "transformers", "models in this process, training", install_line("transformers")),
    ("trl", "trl", "training", install_line("train")),
    ("ai2thor.server", "ai2thor", "navigation in AI2-THOR", install_line("thor")),
    ("mani_skill", "mani_skill", "primitiveskill in ManiSkill", install_line("maniskill")),
    ("dreamsim", "dreamsim", "the paper's scorer of svg", install_line("perceptual")),
    ("matplotlib", "matplotlib", "pivot plot", install_line("plots")),
    ("sklearn", "scikit-learn", "learned baselines of pivot evaluate", install_line("train")),
)
"""Module, distribution, purpose, and how to install it."""


ENGINE_PACKAGES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "ray": (("ray",), "ray"),
    "dask": (("distributed",), "dask"),
}
"""Packages of the engines that are not part of every installation, and the extra that installs them."""


class DoctorOptions(Options):
    """Options of ``pivot doctor``."""

    names: tuple[str, ...] = ()
    """Show the settings of these environments, models, formats instead."""
    base_url: str | None = None
    """Check a model server instead, such as http://localhost:8000/v1."""
    model: str | None = None
    """Model the server is expected to serve."""
    key_variable: str = KEY_VARIABLE
    """Environment variable that holds the key."""


@from_config(Form("doctor", DoctorOptions, {"names": Flag(argument="NAME...")}), file=False)
def doctor(options: DoctorOptions) -> None:
    """Show which parts are installed, and which are missing; or the settings of NAME; or check a model server.

    NAME is an environment and its solver, a model, a policy, a writer of guidance, or a format of pivot import. The
    exit status is 1 when something that PIVOT needs is broken.

    [bold]Examples[/]

    pivot doctor

    pivot doctor sokoban

    pivot doctor --base-url http://localhost:8000/v1 --model Qwen/Qwen2.5-VL-3B-Instruct
    """
    asks_server = bool(options.model_fields_set - {"names"})
    if options.names:
        if asks_server:
            raise ConfigError("NAME shows settings, --base-url, --model, --key-variable check a server; leave one out")
        show_settings(options.names)
        return
    if asks_server:
        _server(options.base_url, options.model, options.key_variable)
        return
    system: list[list[str | Text]] = [
        ["pivot", __version__],
        ["Python", platform.python_version()],
        ["platform", platform.platform() + ("" if sys.platform == "linux" else ": untested, expected Linux")],
        ["cores", str(available_cores())],
        ["free disk here", f"{shutil.disk_usage(Path.cwd()).free / 1e9:.1f} GB"],
    ]
    show_table("System", ["what", "found"], system)
    plugin_rows, broken = _plugins()
    show_table("Plugins", ["group", "name", "state", "fix"], plugin_rows)
    show_table("Optional parts", ["package", "state", "for", "get it"], _optional())
    checks = [[name, *_outcome(check)] for name, check in _SELF_TESTS.items()]
    show_table("Self-test", ["check", "state", "found"], checks)
    if broken or any(state == BROKEN for _, state, _ in checks):
        raise PivotError("something that PIVOT needs is broken; see the tables above")
    out.print("ready: pivot build sokoban frozenlake --out runs/first")


def _server(base_url: str | None, model: str | None, key_variable: str) -> None:
    """Check a model server."""
    if not model:
        raise ConfigError("no model named; give the name that the server uses with --model")
    service = {"key_variable": key_variable, "cache": ""} | ({} if base_url is None else {"base_url": base_url})
    facts = asyncio.run(server_facts(model, read_settings(Service, service, "")))
    show_table("Model server", ["what", "found"], [list(each) for each in facts.items()])
    line = ["pivot", "build", "sokoban", "--out", "runs/vlm", "--policy", "openai", "--model", model]
    line += [] if base_url is None else ["--base-url", bare_url(base_url)]
    line += [] if key_variable == KEY_VARIABLE else ["--key-variable", key_variable]
    out.print(f"ready: {shlex.join(line)}", soft_wrap=True)


async def server_facts(model: str, service: Service) -> dict[str, str]:
    """Send a server the first request of a build, with a picture; return the facts that it reports.

    Raises:
        PluginError: the extra is not installed.
        ConfigError: address, key or model are wrong, or the server drops pictures.
        PivotError: the server does not answer.
    """
    api_key(service.key_variable)
    backend = OpenAIBackend(OpenAIOptions(model=model, revision=""), service, "student")
    backend.check()
    served = backend.connect_for_preflight()
    request = ModelPolicy(backend).request(example_turn())
    try:
        answer = await PreflightModel(served).answer(replace(request, sampling=Sampling(max_tokens=8)))
        checkpoint = await served.served_as()
    finally:
        await served.aclose()
    ids = "with token ids" if answer.token_ids else "without token ids"
    return {
        "address": service.base_url,
        "checkpoint": checkpoint or "not named: name it with --revision, so that no answer of another passes for its",
        "log-probabilities": ids if answer.logprobs else "none: training on these rollouts computes them itself",
    }


def _plugins() -> tuple[list[list[str | Text]], bool]:
    rows, broken = [], False
    for group in plugins.GROUPS:
        for name in plugins.names(group):
            try:
                part = plugins.load(group, name)
                needed, extra = getattr(part, "packages", ()), getattr(part, "extra", "")
                if group == "engines":
                    needed, extra = ENGINE_PACKAGES.get(name, ((), ""))
                lacks = [package for package in needed if not installed(package)]
                fix = f"needs {', '.join(lacks)}: {install_line(extra)}" if lacks else ""
                rows.append([group, name, MISSING if lacks else OK, fix])
            except PluginError as error:
                rows.append([group, name, BROKEN, str(error)])
                broken = True
    return rows, broken


def _optional() -> list[list[str | Text]]:
    rows = []
    for module, package, purpose, fix in OPTIONAL:
        try:
            state, detail = OK, version(package)
            import_module(module)
        except PackageNotFoundError:
            state, detail = MISSING, ""
        except Exception as error:  # noqa: BLE001 - a package may break in any way when it is imported
            state, detail = BROKEN, f"{type(error).__name__}: {error}"
        rows.append([f"{package} {detail}".strip(), state, purpose, "" if state == OK else fix])
    return rows


def _outcome(check: Callable[[], str]) -> tuple[Text, str]:
    try:
        return OK, check()
    except Exception as error:  # noqa: BLE001 - whatever breaks is what the user asked about
        return BROKEN, f"{type(error).__name__}: {error}"


def _certify() -> str:
    from ..solvers.api import certify  # noqa: PLC0415 - a broken solver must not keep doctor from starting

    if "sokoban" not in plugins.names("solvers"):
        return "not tried: sokoban is not registered"
    verdict = certify("sokoban", "######\n#@$ .#\n######", ["invalid"] * 2, 2)
    return f"pivot {verdict.pivot_step}, {verdict.failure_mode}"


def _build() -> str:
    from ..flows.build import build  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        registered = plugins.names("environments")
        names = [name for name in ("sokoban", "frozenlake") if name in registered] or registered[:1]
        raw = {"environments": {name: {"tasks": 1, "settings": {}} for name in names}}
        result = build(raw, Path(folder) / "store")
    return f"{sum(counts['episodes'] for counts in result.environments.values())} episodes built"


def _prefect() -> str:
    import prefect  # noqa: PLC0415 - slow to import

    return f"prefect {prefect.__version__}"


_SELF_TESTS = {"certify a level": _certify, "build a tiny store": _build, "flow engine": _prefect}
