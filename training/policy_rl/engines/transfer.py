"""Transfer of all weights to running servers by vLLM's library: over NCCL between GPUs, or by CUDA IPC on one GPU.

vLLM's library is used at both ends, so the trainer needs the servers' version of it installed. A running model may
ignore a part of the new weights (a reload kept the output head of tied embeddings); the probe after every transfer
checks that the servers compute with the trainer's weights.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....errors import ServerGoneError, TrainingError
from ....models.extras import need
from .base import Save
from .hand_over import reset_caches
from .http import get
from .servers import LOOPBACK, Servers, free_port

LIBRARY, EXTRA = "vllm.distributed.weight_transfer", "vllm"
VARIABLES = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
"""The routes of transfers belong to the development mode, and handles of CUDA IPC are sent pickled; servers listen on
loopback alone."""
ENGINES = {
    "nccl": (f"{LIBRARY}.nccl_engine", "NCCLTrainerInitInfo"),
    "ipc": (f"{LIBRARY}.ipc_engine", "IPCTrainerInitInfo"),
}
"""Module and class of the trainer's settings, by name of the transfer."""


@dataclass(slots=True)
class Transfer:
    """Start the servers on saved weights once, and send all later weights to them."""

    folder: Path
    """Folder of the first weights."""
    model: Any
    """The trained model."""
    way: str
    """Key of ``ENGINES``."""
    _senders: list[Any] = field(default_factory=list)

    def __call__(self, servers: Servers, save: Save) -> None:
        """Send the weights; see :class:`.HandOver`.

        Raises:
            PluginError: vLLM is not installed in the trainer's environment. Others as in the protocol.
        """
        if not self._senders:
            need(LIBRARY, EXTRA)
            save(str(self.folder))
            transfer = json.dumps({"backend": self.way})
            servers.restart([str(self.folder), "--weight-transfer-config", transfer], variables=VARIABLES)
            self._senders = [_with_reasons(url, lambda url=url: self._connect(url)) for url in servers.urls]
            return
        for url, sender in zip(servers.urls, self._senders, strict=True):
            _with_reasons(url, sender.send_weights)
            reset_caches(url)

    def _connect(self, url: str) -> Any:
        """Return the library's sender of weights to a started server."""
        library, (module, name) = need(LIBRARY, EXTRA), ENGINES[self.way]
        server, nccl = url.removesuffix("/v1"), {}
        if self.way == "nccl":
            nccl = {"master_address": LOOPBACK, "master_port": free_port(), "world_size": 1 + world_size(server)}
        return library.WeightTransferTrainerFactory.trainer_init(
            getattr(need(module, EXTRA), name)(rank=0, **nccl),
            client=library.HTTPVLLMWeightSyncClient(server),
            source=library.ModuleSource(self.model),
        )


def world_size(server: str) -> int:
    """Return the number of processes of a server, among which the weights are divided."""
    return int(get(server, "/get_world_size")["world_size"])


def _with_reasons(url: str, call: Callable[[], Any]) -> Any:
    requests: Any = need("requests", EXTRA)
    try:
        return call()
    except (requests.ConnectionError, requests.Timeout) as error:
        raise ServerGoneError(
            f"{url} stopped while weights were transferred ({error}); see its log, then run the same command with "
            "--resume"
        ) from error
    except (requests.RequestException, RuntimeError, ValueError, OSError) as error:
        raise TrainingError(
            f"{url}: found {type(error).__name__} while weights were transferred ({error}), expected a vLLM of the "
            "version that is installed here, on GPUs that this process reaches; see its log, or use --hand-over restart"
        ) from error
