"""``pivot serve-command``: the line that serves a model with vLLM on this machine, and why each flag is there.

Two of the flags decide data: without ``--generation-config vllm`` a server mixes the checkpoint's own sampling defaults
into every reply, and log-probabilities must be those of the model, not of the sampler. The rest is room for pictures.
"""

import re
import shlex
import subprocess
from dataclasses import dataclass

from pydantic import Field

from ..models.weights import check_model
from .console import err, out, styled
from .from_config import Flag, Form, from_config
from .options import Options

CONTEXT_TOKENS = 8192
"""Prompt and reply: a collage of 25 renders takes about 3,100 tokens, text 1,500, a reply 512."""

IMAGES_A_PROMPT = 4
"""Maximum number of pictures per prompt; PIVOT's own prompts have at most two."""

PORT = 8000
GIB_A_BILLION = 2.0
"""Weights in bfloat16, two bytes a parameter."""

ROOM = 0.65
"""Share of a GPU that weights may take, so that the rest holds keys and values of many requests."""

REASONING_PARSERS = {
    r"Qwen3.*Thinking|QwQ|DeepSeek-R1": "deepseek_r1",
    r"Qwen3": "qwen3",
    r"GLM-4\.(5|1V.*Thinking)": "glm45",
    r"DeepSeek-V3\.1": "deepseek_v3",
    r"ERNIE-4\.5-(VL|.*Thinking)": "ernie45",
    r"Hunyuan-A13B": "hunyuan_a13b",
    r"granite-3\.2": "granite",
    r"MiniMax-M2": "minimax_m2_append_think",
}
"""Patterns of model names to vLLM's parser of their thoughts (its page "Reasoning Outputs"); the first that fits."""

_SIZE = re.compile(r"(?:^|[^0-9A-Za-z])(\d+(?:\.\d+)?)[bB](?![0-9A-Za-z])")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of this machine."""

    name: str
    memory_gib: float


def gpus() -> list[Gpu]:
    """Return the GPUs that ``nvidia-smi`` knows; none without that command."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listing = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.rsplit(",", 1) for line in listing.splitlines() if "," in line]
    return [Gpu(name.strip(), float(memory) / 1024) for name, memory in rows if memory.strip().isdigit()]


def billions(model: str) -> float | None:
    """Return the size in a model's name, such as 3 for ``Qwen2.5-VL-3B-Instruct``; None if it has none."""
    sizes = _SIZE.findall(model)
    return float(sizes[-1]) if sizes else None


def tensor_parallel(model: str, machine: list[Gpu]) -> int:
    """Return the number of GPUs for a model: the smallest power of two whose memory suffices."""
    size = billions(model)
    if size is None or not machine:
        return 1
    smallest = min(gpu.memory_gib for gpu in machine)
    count = 1
    while size * GIB_A_BILLION > ROOM * smallest * count and 2 * count <= len(machine):
        count *= 2
    return count


def reasoning_parser(model: str) -> str | None:
    """Return vLLM's parser for the thoughts of a model, by its name; None for a model without one.

    With it the grammar of a JSON answer begins after the thought.
    """
    fits = (name for pattern, name in REASONING_PARSERS.items() if re.search(pattern, model, re.IGNORECASE))
    return None if re.search("Instruct", model) else next(fits, None)


def serve_line(model: str, machine: list[Gpu], port: int = PORT, name: str | None = None) -> list[str]:
    """Return the command, word by word, for a machine with these GPUs."""
    spread = tensor_parallel(model, machine)
    copies = len(machine) // spread
    # The CPU build comes without a working vllm script, but with its module.
    words = ["vllm", "serve", model] if machine else ["python", "-m", "vllm.entrypoints.openai.api_server"]
    words += [] if machine else ["--model", model]
    words += ["--served-model-name", name or model, "--port", str(port), "--max-model-len", str(CONTEXT_TOKENS)]
    words += ["--limit-mm-per-prompt", f'{{"image": {IMAGES_A_PROMPT}, "video": 0}}']
    words += ["--generation-config", "vllm", "--logprobs-mode", "raw_logprobs", "--max-logprobs", "5"]
    if parser := reasoning_parser(model):
        words += ["--reasoning-parser", parser]
    if not machine:
        # vLLM may retract a request after half a prompt, which fails on a CPU and ends the server.
        return [*words, "--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill"]
    if spread > 1:
        words += ["--tensor-parallel-size", str(spread)]
    if copies > 1:
        words += ["--data-parallel-size", str(copies)]
    return [*words, "--gpu-memory-utilization", "0.9", "--max-num-seqs", "256"]


class ServeOptions(Options):
    """Options of ``pivot serve-command``."""

    model: str = Field(min_length=1)
    """Hub id or saved folder of the model."""
    port: int = Field(default=PORT, ge=1, le=65535)
    """Port of the server."""
    name: str | None = None
    """Name for requests; by default the model as given."""


@from_config(Form("serve", ServeOptions, {"model": Flag(argument="MODEL")}), file=False)
def serve_command(options: ServeOptions) -> None:
    """Print the vLLM command that serves a model on this machine, ready to paste.

    The command is all that goes to standard output; what was found goes to standard error.

    [bold]Example[/]

    pivot serve-command Qwen/Qwen2.5-VL-3B-Instruct
    """
    model, port, name = options.model, options.port, options.name
    check_model(model)
    machine = gpus()
    line = serve_line(model, machine, port, name)
    if machine:
        err.print(f"{len(machine)} GPU(s): {', '.join(f'{gpu.name} {gpu.memory_gib:.0f} GiB' for gpu in machine)}")
        size = billions(model)
        memory = tensor_parallel(model, machine) * min(gpu.memory_gib for gpu in machine)
        if size is not None and size * GIB_A_BILLION > memory:
            text = f"{size:g} billion parameters do not fit: {size * GIB_A_BILLION:.0f} GiB of weights"
            err.print(styled((text, "yellow")))
    else:
        err.print("no GPU found (no nvidia-smi): the line is for vLLM's CPU build, good for trying things out")
    out.print(shlex.join(line), soft_wrap=True)
    url = f"http://localhost:{port}/v1"
    served = shlex.quote(name or model)
    err.print(f"when it is up: pivot doctor --base-url {url} --model {served}", soft_wrap=True)
