"""All weights straight into running servers, by vLLM's weight transfer: over NCCL between GPUs, or by CUDA IPC on one.

vLLM's own library does both ends, so that it has to be installed beside the trainer, too, in the servers' version.
What a running model makes of new weights is its business (a reload has left the output head of tied embeddings as it
was): whether they are those of the trainer is for the probe to tell, which follows every hand-over.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....errors import ServerGoneError, TrainingError
from ....models.extras import need
from .hand_over import Save, forget
from .http import get
from .servers import LOOPBACK, Servers, free_port

LIBRARY, EXTRA = "vllm.distributed.weight_transfer", "vllm"
VARIABLES = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
"""The routes of transfers are for development; handles of CUDA IPC travel pickled. Servers listen on loopback alone."""
ENGINES = {
    "nccl": (f"{LIBRARY}.nccl_engine", "NCCLTrainerInitInfo"),
    "ipc": (f"{LIBRARY}.ipc_engine", "IPCTrainerInitInfo"),
}
"""By way, what describes the trainer's end of it: module and class."""


@dataclass(slots=True)
class Transfer:
    """Servers start on saved weights once and are sent all weights from then on."""

    folder: Path
    """Where the first weights are saved."""
    model: Any
    """That is trained."""
    way: str
    """Of ``ENGINES``."""
    _senders: list[Any] = field(default_factory=list)

    def __call__(self, servers: Servers, save: Save) -> None:
        """See :class:`.HandOver`.

        Raises:
            PluginError: vLLM is not installed beside the trainer. Others as there.
        """
        if not self._senders:
            need(LIBRARY, EXTRA)
            save(str(self.folder))
            configured = json.dumps({"backend": self.way})
            servers.restart([str(self.folder), "--weight-transfer-config", configured], variables=VARIABLES)
            self._senders = [_carried_out(url, lambda url=url: self._meet(url)) for url in servers.urls]
            return
        for url, sender in zip(servers.urls, self._senders, strict=True):
            _carried_out(url, sender.send_weights)
            forget(url)

    def _meet(self, url: str) -> Any:
        """Return what sends the model's weights to a server that has just come up."""
        library, (module, name) = need(LIBRARY, EXTRA), ENGINES[self.way]
        server, told = url.removesuffix("/v1"), {}
        if self.way == "nccl":
            told = {"master_address": LOOPBACK, "master_port": free_port(), "world_size": 1 + world_size(server)}
        return library.WeightTransferTrainerFactory.trainer_init(
            getattr(need(module, EXTRA), name)(rank=0, **told),
            client=library.HTTPVLLMWeightSyncClient(server),
            source=library.ModuleSource(self.model),
        )


def world_size(server: str) -> int:
    """Return the processes of a server among which the weights are divided."""
    return int(get(server, "/get_world_size")["world_size"])


def _carried_out(url: str, call: Callable[[], Any]) -> Any:
    requests: Any = need("requests", EXTRA)
    try:
        return call()
    except (requests.ConnectionError, requests.Timeout) as error:
        raise ServerGoneError(
            f"{url} has gone while weights were handed over ({error}); see its log, then run the same command with "
            "--resume"
        ) from error
    except (requests.RequestException, RuntimeError, ValueError, OSError) as error:
        raise TrainingError(
            f"{url}: found {type(error).__name__} while weights were handed over ({error}), expected a vLLM of the "
            "version that is installed here, on GPUs that this process reaches; see its log, or hand them over with "
            "--hand-over restart"
        ) from error
