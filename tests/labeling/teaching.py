"""A teacher whose model is a list of planted answers, and the pictures of recorded episodes."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pivot.core import plugins
from pivot.core.images import encode_png, frame_id
from pivot.core.plugins import Settings
from pivot.environments.base import PivotEnv
from pivot.labeling.base import FailedEpisode
from pivot.labeling.writers.model import ModelWriter
from pivot.models.base import Backend, ChatAnswer, ChatModel, ChatRequest, ModelOptions

Answers = Callable[[ChatRequest], ChatAnswer]


class PlantedModel(ChatModel):
    """Answers by a function and keeps every request."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.requests: list[ChatRequest] = []

    @property
    def config(self) -> dict[str, Any]:
        return {"model": "planted", "revision": "1"}

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        self.requests.append(request)
        return self.answers(request)


class PlantedBackend(Backend):
    """A model with prepared answers, in the form that policies and writers use."""

    name: ClassVar[str] = "planted"
    config_type: ClassVar[type[Settings]] = ModelOptions
    service_type: ClassVar[type[Settings]] = Settings

    def __init__(self, answers: Answers) -> None:
        super().__init__(ModelOptions(model="planted"), Settings(), "teacher")
        self.model = PlantedModel(answers)

    @property
    def config(self) -> dict[str, Any]:
        return self.model.config

    @property
    def in_flight(self) -> int:
        return 64

    def connect(self) -> ChatModel:
        return self.model


class PlantedTeacher(ModelWriter):
    """A writer on a planted model."""

    def __init__(self, answers: Answers) -> None:
        backend = PlantedBackend(answers)
        super().__init__(backend)
        self.model = backend.model


def pictures(episodes: Sequence[FailedEpisode]) -> dict[str, bytes]:
    """The encoded frames of recorded episodes by id, by playing them again."""
    encoded: dict[str, bytes] = {}
    for episode in episodes:
        env: PivotEnv = plugins.load("environments", episode.env).from_settings(dict(episode.env_config))
        frame, _ = env.reset(options={"state": episode.initial_state})
        encoded[frame_id(frame)] = encode_png(frame)
        for action in episode.actions:
            frame = env.step(env.encode_action(action))[0]
            encoded[frame_id(frame)] = encode_png(frame)
    return encoded


def text_of(request: ChatRequest) -> str:
    """Return all text of a request, in order."""
    return "\n".join(part["text"] for message in request.messages for part in message["content"] if "text" in part)
