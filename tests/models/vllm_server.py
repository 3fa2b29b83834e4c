"""A vLLM server on this machine's CPU around a saved model, for the tests of ``make test WHAT=serving``."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from pivot.tests.flow_runs import free_port

START_SECONDS = 900.0
"""Longest start: half a minute on an idle machine, five on a busy one."""
NAME = "tiny"


@contextlib.contextmanager
def vllm_server(folder: Path, log: Path) -> Iterator[str]:
    """Serve the model in ``folder`` as ``tiny`` and give the base URL; the server's output goes to ``log``.

    The module is started by name because the ``vllm`` command of the CPU build is broken.
    """
    port = free_port()
    words = ["--model", str(folder), "--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "4096", "--generation-config", "vllm"]
    # vLLM rewinds the request's generator after half a prompt, which a generator of the CPU refuses.
    words += ["--no-enable-chunked-prefill"]
    words += ["--limit-mm-per-prompt", '{"image": 4, "video": 0}', "--logprobs-mode", "raw_logprobs"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("w") as sink:
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words],
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,  # the working folder must not hold a folder `datasets`
        )
        try:
            _wait(server, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait(server: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(1)
    raise RuntimeError(f"vLLM did not start:\n{log.read_text()[-4000:]}")
