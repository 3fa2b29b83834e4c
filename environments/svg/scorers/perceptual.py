"""The paper's scorer: DINOv2 and DreamSim, both learned, averaged (spec section 2). Needs the ``perceptual`` extra.

DINO is the cosine of two pictures' features, mapped to [0, 1]; the features are the mean of all tokens of the last
layer of a DINOv2 model of transformers, class token included, after the preprocessing that the checkpoint comes with.
DreamSim is one minus the distance that the dreamsim package computes. Models are loaded at the first score, from a
local folder or the hub, onto the GPU if there is one. Scores are rounded, since arithmetic differs between devices and
batch sizes.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from ....errors import ConfigError
from ...base import Frame
from .base import Score, Scorer, rounded

BATCH = 32
"""Pictures in one forward pass; with dinov2-small and the DreamSim ensemble this fits into 4 GB."""


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
        """Load nothing yet.

        Args:
            dino_model: folder or hub id of a DINOv2 checkpoint with its preprocessor settings.
            dreamsim_model: ``dreamsim_type`` of the package.
            dreamsim_weights: folder of the package's weights, which are downloaded to it where they are missing;
                empty for ``~/.cache/dreamsim``.
            device: a torch device; empty for the GPU if there is one, else the CPU.
        """
        self.dino_model = dino_model
        self.dreamsim_model = dreamsim_model
        self.dreamsim_weights = dreamsim_weights
        self.device = device
        self._dino: Callable[[Sequence[Frame]], Any] | None = None
        self._dreamsim: Callable[[Frame, Sequence[Frame]], Any] | None = None

    def score(self, target: Frame, canvases: Sequence[Frame]) -> list[Score]:
        """See :meth:`Scorer.score`.

        Raises:
            ConfigError: a package is missing, or a model cannot be loaded.
        """
        if self._dino is None or self._dreamsim is None:
            torch = _package("torch")
            device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
            self._dino = _load_dino(torch, self.dino_model, device)
            self._dreamsim = _load_dreamsim(torch, self.dreamsim_model, self.dreamsim_weights, device)
        scores = []
        for start in range(0, len(canvases), BATCH):
            batch = canvases[start : start + BATCH]
            features = self._dino([target, *batch])
            cosines = (features[1:] * features[0]).sum(axis=1)
            distances = self._dreamsim(target, batch)
            for canvas, cosine, distance in zip(batch, cosines, distances, strict=True):
                scores.append(_score(bool(np.array_equal(target, canvas)), float(cosine), float(distance)))
        return scores


def _score(identical: bool, cosine: float, distance: float) -> Score:
    """Return the score from a cosine in [-1, 1] and a distance, 0 for alike; identical pictures are exactly alike."""
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


def _load_dino(torch: Any, model_name: str, device: str) -> Callable[[Sequence[Frame]], Any]:
    """Return a function from pictures to unit feature vectors, float64, shape (pictures, width)."""
    transformers = _package("transformers")
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(model_name)
        model = transformers.Dinov2Model.from_pretrained(model_name).to(device).eval()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the DINOv2 model {model_name!r} cannot be loaded ({type(error).__name__}: {error}); set svg.dino_model "
            "to a hub id that can be reached, or to a folder with the checkpoint and its preprocessor_config.json"
        ) from error

    def features(pictures: Sequence[Frame]) -> Any:
        pixels = processor(images=[Image.fromarray(picture) for picture in pictures], return_tensors="pt")
        with torch.inference_mode():
            tokens = model(pixel_values=pixels["pixel_values"].to(device)).last_hidden_state
            vectors = tokens.float().mean(dim=1).cpu().numpy().astype(np.float64)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return features


def _load_dreamsim(torch: Any, kind: str, weights: str, device: str) -> Callable[[Frame, Sequence[Frame]], Any]:
    """Return a function from a target and canvases to their distances, shape (canvases,)."""
    folder = weights or str(Path.home() / ".cache" / "dreamsim")
    try:
        model, preprocess = _package("dreamsim").dreamsim(
            pretrained=True, device=device, cache_dir=folder, dreamsim_type=kind
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"the DreamSim model {kind!r} cannot be loaded from {folder} ({type(error).__name__}: {error}); set "
            "svg.dreamsim_weights to a folder with its weights, or allow it to download them"
        ) from error

    def distances(target: Frame, canvases: Sequence[Frame]) -> Any:
        tensors = [preprocess(Image.fromarray(picture)).to(device) for picture in (target, *canvases)]
        stacked = torch.cat(tensors[1:])
        with torch.inference_mode():
            values = model(tensors[0].expand_as(stacked), stacked)
        return values.float().reshape(-1).cpu().numpy()

    return distances
