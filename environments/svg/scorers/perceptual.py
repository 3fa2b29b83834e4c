"""The paper's scorer: mean of DINOv2 and DreamSim, both learned. Needs the ``perceptual`` extra.

The DINO score is the cosine of two pictures' features, mapped to [0, 1]. The features are the mean of all tokens of the
last layer of a DINOv2 model of transformers, including the class token, after the checkpoint's preprocessing. The
DreamSim score is one minus the distance defined by the dreamsim package, which is one minus the cosine of its
embeddings. Models are loaded at the first score, from a local folder or the hub, onto the GPU if there is one.

Embeddings are cached. The last bits of a score depend on the device and on the batch: scores are rounded, and do not
repeat exactly.
"""

import contextlib
import fcntl
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ....core.errors import ConfigError
from ...base import Frame
from .base import Score, Scorer, rounded

BATCH = 32
"""Maximum number of pictures per forward pass; with dinov2-small and the DreamSim ensemble this fits into 4 GB."""
KEPT = 1024
"""Size of the cache of embeddings, about 10 KB each; more than the pictures of one call."""

Embed = Callable[[Sequence[Frame]], NDArray[Any]]
"""Function from pictures to unit vectors, float64, shape (pictures, width)."""


class PerceptualScorer(Scorer):
    """Mean of the DINO and DreamSim scores; see the module docstring."""

    name: ClassVar[str] = "dino+dreamsim"
    version: ClassVar[str] = "1"

    def __init__(
        self,
        dino_model: str = "facebook/dinov2-small",
        dreamsim_model: str = "ensemble",
        dreamsim_weights: str = "",
        device: str = "",
    ) -> None:
        """Create the scorer without loading models.

        Args:
            dino_model: folder or hub id of a DINOv2 checkpoint with its preprocessor settings.
            dreamsim_model: ``dreamsim_type`` of the package.
            dreamsim_weights: folder of the package's weights, which are downloaded to it if missing;
                empty for ``~/.cache/dreamsim``.
            device: a torch device; empty for the GPU if there is one, else the CPU.
        """
        self.dino_model = dino_model
        self.dreamsim_model = dreamsim_model
        self.dreamsim_weights = dreamsim_weights
        self.device = device
        self._models: tuple[Embed, Embed] | None = None
        self._lock = threading.Lock()
        """Lock of the models and of their embeddings."""
        self._kept: OrderedDict[bytes, tuple[NDArray[Any], NDArray[Any]]] = OrderedDict()

    def score(self, target: Frame, canvases: Sequence[Frame]) -> list[Score]:
        """Return the scores; see :meth:`Scorer.score`.

        Raises:
            ConfigError: a package is missing, or a model cannot be loaded.
        """
        scores = []
        for start in range(0, len(canvases), BATCH):
            pictures = {_key(picture): picture for picture in (target, *canvases[start : start + BATCH])}
            vectors = self._embedded(pictures)
            aim = vectors[_key(target)]
            for canvas in canvases[start : start + BATCH]:
                dino, dreamsim = (float(one @ other) for one, other in zip(aim, vectors[_key(canvas)], strict=True))
                scores.append(_score(bool(np.array_equal(target, canvas)), dino, 1 - dreamsim))
        return scores

    def _embedded(self, pictures: Mapping[bytes, Frame]) -> dict[bytes, tuple[NDArray[Any], NDArray[Any]]]:
        """Return both models' embeddings of every picture."""
        with self._lock:
            for key in pictures.keys() & self._kept.keys():
                self._kept.move_to_end(key)
            if missing := {key: picture for key, picture in pictures.items() if key not in self._kept}:
                self._compute(missing)
            return {key: self._kept[key] for key in pictures}

    def _compute(self, pictures: Mapping[bytes, Frame]) -> None:
        if self._models is None:
            torch = _package("torch")
            device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
            dino = _load_dino(torch, self.dino_model, device)
            self._models = dino, _load_dreamsim(torch, self.dreamsim_model, self.dreamsim_weights, device)
        items = list(pictures.items())
        for start in range(0, len(items), BATCH):
            part = items[start : start + BATCH]
            vectors = [embed([picture for _, picture in part]) for embed in self._models]
            self._kept |= zip([key for key, _ in part], zip(*vectors, strict=True), strict=True)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def _key(picture: Frame) -> bytes:
    return hashlib.blake2b(picture.tobytes(), digest_size=16).digest()


def _score(identical: bool, cosine: float, distance: float) -> Score:
    """Return the score for a cosine in [-1, 1] and a distance of 0 or more; identical pictures score exactly 1."""
    dino = 1.0 if identical else rounded((cosine + 1) / 2)
    dreamsim = 1.0 if identical else rounded(1 - distance)
    return Score(rounded((dino + dreamsim) / 2), {"dino": dino, "dreamsim": dreamsim})


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"scorer 'dino+dreamsim' needs the package {name} ({error}); install it with "
            "pip install 'pivot-vlm[perceptual]', or choose --set svg.scorer=pixel"
        ) from error


def _load_dino(torch: Any, model_name: str, device: str) -> Embed:
    transformers = _package("transformers")
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(model_name)
        model = transformers.Dinov2Model.from_pretrained(model_name).to(device).eval()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the DINOv2 model {model_name!r} cannot be loaded ({type(error).__name__}: {error}); set svg.dino_model "
            "to a hub id that can be reached, or to a folder with the checkpoint and its preprocessor_config.json"
        ) from error

    def embed(pictures: Sequence[Frame]) -> NDArray[Any]:
        pixels = processor(images=[Image.fromarray(picture) for picture in pictures], return_tensors="pt")
        with torch.inference_mode():
            tokens = model(pixel_values=pixels["pixel_values"].to(device)).last_hidden_state
            return _unit(tokens.float().mean(dim=1))

    return embed


def _load_dreamsim(torch: Any, kind: str, weights: str, device: str) -> Embed:
    folder = Path(weights) if weights else Path.home() / ".cache" / "dreamsim"
    try:
        with _one_at_a_time(folder):
            model, preprocess = _package("dreamsim").dreamsim(
                pretrained=True, device=device, cache_dir=str(folder), dreamsim_type=kind
            )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"the DreamSim model {kind!r} cannot be loaded from {folder} ({type(error).__name__}: {error}); set "
            "svg.dreamsim_weights to a folder with its weights, or allow it to download them"
        ) from error

    def embed(pictures: Sequence[Frame]) -> NDArray[Any]:
        tensors = torch.cat([preprocess(Image.fromarray(picture)) for picture in pictures])
        with torch.inference_mode():
            return _unit(model.embed(tensors.to(device)).float())

    return embed


def _unit(vectors: Any) -> NDArray[Any]:
    """Return the rows of a tensor, shape (pictures, width), scaled to length 1."""
    values: NDArray[Any] = vectors.cpu().numpy().astype(np.float64)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let only one process of this machine load from a folder at a time, so that the first downloads for all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("ab")
    except OSError:  # the folder is read-only: nothing can be downloaded to it either
        yield
        return
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
