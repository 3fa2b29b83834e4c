"""A way of vLLM's weight transfer that needs no GPU: weights go through a file. For tests of what is around a way.

Both ends of it are here, each registered in its process: the servers load this file as a plugin of vLLM's.
"""

import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

library: Any = import_module("vllm.distributed.weight_transfer")
reload: Any = import_module("vllm.model_executor.model_loader.reload")
files: Any = import_module("safetensors.torch")

WAY = "file"


@dataclass
class FileInit(library.base.WeightTransferInitInfo):
    """Nothing has to be agreed on."""


@dataclass
class FileUpdate(library.base.WeightTransferUpdateInfo):
    """Where the weights are."""

    path: str = ""


class FileEngine(library.WeightTransferEngine[FileInit, FileUpdate]):
    """The server's end, as the one for CUDA IPC does it."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Do nothing."""

    def start_weight_update(self) -> None:
        """Get ready for weights as they are in checkpoints."""
        reload.initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Put them where the model computes with them."""
        reload.finalize_layerwise_reload(self.model, self.model_config)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load the file."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: FileUpdate) -> None:
        """Load the file."""
        self.model.load_weights(files.load_file(update_info.path).items())

    def shutdown(self) -> None:
        """Do nothing."""


@dataclass
class FileTrainerInit(library.base.TrainerInitInfo):
    """Nothing has to be agreed on."""

    backend: ClassVar[str] = WAY


class FileTrainerEngine(library.TrainerWeightTransferEngine[FileTrainerInit]):
    """The trainer's end."""

    init_info_cls = FileTrainerInit

    @classmethod
    def trainer_init(cls, init_info: FileTrainerInit, *, client: Any, source: Any = None) -> "FileTrainerEngine":
        """Meet the server."""
        client.init_weight_transfer_engine({})
        return cls(client=client, source=source, is_sender=init_info.is_sender)

    def send_weights(self) -> None:
        """Write the file and have it loaded."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.safetensors"
            files.save_file({name: each.detach().clone() for name, each in self.source or ()}, path)
            self.client.start_weight_update()
            self.client.update_weights({"path": str(path)})
            self.client.finish_weight_update()

    def shutdown(self) -> None:
        """Do nothing."""


def register() -> None:
    """Make the way known in this process."""
    library.WeightTransferEngineFactory.register_engine(WAY, FileEngine)
    library.WeightTransferTrainerFactory.register_engine(WAY, FileTrainerEngine)
