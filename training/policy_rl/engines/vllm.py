"""Generation by vLLM servers: :mod:`.hand_over` sends the weights of the last update, :mod:`.probe` checks them."""

from typing import ClassVar

from ....errors import TrainingError
from ....models.openai.model import PACKAGES
from ....storage import open_storage
from .base import GenerationOptions, Generator, Save, Trained
from .hand_over import Restart, SwapAdapters
from .served import ServedBackend
from .servers import Servers
from .transfer import Transfer

SERVED_WEIGHTS, SERVER_LOGS = ".served", "servers"
"""In the folder of a run: weights for the servers, and their logs."""


class VllmGenerator(Generator):
    """Servers that get the weights of the trained model after every update; all processes use them."""

    packages: ClassVar[tuple[str, ...]] = PACKAGES
    extra: ClassVar[str] = "openai"

    def __init__(self, trained: Trained) -> None:
        """Prepare the servers and the hand-over; see :class:`Generator`.

        Raises:
            TrainingError: ``hand_over`` does not work with several processes.
        """
        from .probe import PROBE_TURNS, Probe  # noqa: PLC0415 - needs PyTorch

        super().__init__(trained)
        config, folder, processes = trained.config, trained.folder, trained.ranks.count
        if config.hand_over == "ipc" and processes > 1:
            raise TrainingError(
                f"hand-over by ipc: found {processes} training processes, expected one; use --hand-over nccl"
            )
        self._servers = Servers(config.server_command, config.server_devices, folder / SERVER_LOGS)
        self._probe = Probe(trained.scorer.encoder, trained.first_turns(PROBE_TURNS), half=trained.scorer.half)
        self._urls: list[str] = []
        saved = folder.resolve() / SERVED_WEIGHTS  # servers run in another folder
        if config.lora:
            self._hand_over = SwapAdapters(saved, config.model, config.revision, config.lora_rank)
        elif config.hand_over == "restart":
            self._hand_over = Restart(saved)
        else:
            self._hand_over = Transfer(saved, trained.model, config.hand_over)

    def backend(self, options: GenerationOptions) -> ServedBackend:
        """Return the servers as one model."""
        banned = self.trained.scorer.encoder.placeholders
        return ServedBackend(options, lambda: self._urls, banned, self.trained.config.generate)

    def sync(self, save: Save) -> float | None:
        """Send the weights to the servers, and compare their answers with the trainer's; see :class:`Generator`."""
        difference, ranks = None, self.trained.ranks
        if ranks.is_main:
            self._hand_over(self._servers, save)
            difference = self._probe.check(self.trained.model, self._servers.urls)
        self._urls = ranks.join({0: self._servers.urls} if ranks.is_main else {})[0]
        return difference

    def close(self) -> None:
        """End the servers, and remove their copy of the weights."""
        self._servers.close()
        open_storage(self._hand_over.folder).delete("")
