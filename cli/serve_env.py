"""``pivot serve-env``: an environment as a server of OpenEnv."""

from typing import Annotated

import typer

from ..errors import ConfigError, PluginError
from ..models.extras import install_line, installed
from .console import err
from .from_config import env_settings
from .options import option

PORT = 8000
RULE = "progress"
NO_RULE = "none"
INSTALL = f"{install_line('openenv')} && pip install --no-deps 'openenv-core>=0.3'"
"""Commands that install the server. The dependencies of openenv-core include a web page with an older Pillow."""


def serve_env(
    env: Annotated[str, typer.Argument(metavar="ENV", help="Environment, such as sokoban.")],
    tasks: Annotated[int, option("Number of tasks that resets without a seed go through.", "--tasks", min=1)] = 100,
    seed: Annotated[int, option("Seed of the levels.", "--seed", min=0)] = 0,
    rule: Annotated[
        str, option("Rule of the step rewards: progress, slack, pivot; none for the environment's rewards.", "--rule")
    ] = RULE,
    settings: Annotated[
        list[str] | None,
        option("Environment setting, as pivot settings ENV lists them. May be repeated.", "--set", metavar="KEY=VALUE"),
    ] = None,
    host: Annotated[str, option("Address to listen on; 0.0.0.0 for every network.", "--host")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on.", "--port", min=1, max=65535)] = PORT,
    sessions: Annotated[int, option("Maximum number of simultaneous episodes.", "--sessions", min=1)] = 64,
) -> None:
    """Serve an environment to trainers that use OpenEnv; each step's reward is the turn's credit.

    An episode is a WebSocket connection: reset, then one step per reply. Observations hold the next user message, with
    pictures as data URLs. Ctrl-C ends the server.

    [bold]Examples[/]

    pivot serve-env sokoban --set boxes=2

    pivot serve-env svg --rule none --port 8001
    """
    if not installed("openenv"):
        raise PluginError(f"package 'openenv' is not installed; get it with: {INSTALL}")
    import uvicorn  # noqa: PLC0415 - after the check above

    from ..integrations.openenv import make_app  # noqa: PLC0415 - imports FastAPI

    if not host:
        raise ConfigError("--host: found '', expected an address, such as 127.0.0.1")
    app = make_app(
        env,
        settings=env_settings(env, settings or []),
        tasks=tasks,
        seed=seed,
        rule=None if rule == NO_RULE else rule,
        sessions=sessions,
    )
    err.print(f"OpenEnv server of {env}: ws://{host}:{port}/ws; Ctrl-C ends it")
    uvicorn.run(app, host=host, port=port, log_level="warning")


__all__ = ["serve_env"]
