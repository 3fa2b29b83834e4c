"""Generation by the module in training, with the encoded prompts and pictures of the scorer."""

from collections.abc import Sequence
from typing import Any

from ...models.base import ChatRequest, image_ids
from ...models.extras import need
from ...models.transformers.model import Engine, picture_of
from ..config import EXTRA
from ..encode import Batch, EncodedPrompt
from .scoring import Scorer, pictures_of
from .weights import VisionCache, showing

torch: Any = need("torch", EXTRA)


class TrainedEngine(Engine):
    """Generation by the module in training, with the prompts and pictures that its scorer encodes only once."""

    def __init__(self, model: Any, scorer: Scorer, pictures: VisionCache | None = None) -> None:
        """Generate with ``model``; ``pictures`` is the cache of a vision encoder that is not trained."""
        super().__init__(model, scorer.encoder.processor, scorer.encoder.placeholders)
        self._scorer, self._pictures = scorer, pictures

    def _prompt(self, request: ChatRequest) -> EncodedPrompt:
        if request.role == "student":
            return self._scorer.encoded(request, request.images)
        # A collage of the Analyzer is large and shown once.
        pictures = [picture_of(request.images[name]) for name in image_ids(request.messages)]
        return self._scorer.encoder.prompt(request.messages, pictures)

    def _inputs(self, prompts: Sequence[EncodedPrompt]) -> Batch:
        return {name: each.to(self.device) for name, each in self._scorer.encoder.open(prompts).items()}

    def _sample(self, requests: Sequence[ChatRequest], prompts: Sequence[EncodedPrompt], **settings: Any) -> Any:
        if self._pictures is None or any(each.role != "student" for each in requests):
            return super()._sample(requests, prompts, **settings)
        with torch.inference_mode(False), torch.no_grad():  # the update reads them, too
            rows = zip(requests, prompts, strict=True)
            shown = [picture for each, prompt in rows for picture in pictures_of(each, prompt)]
            features = self._pictures.encode(shown) if shown else None
        with showing(self._model, features):
            return super()._sample(requests, prompts, **settings)
