"""A teacher whose model is a list of planted answers, and the pictures of recorded episodes."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pivot import plugins
from pivot.environments.base import PivotEnv
from pivot.images import encode_png, frame_id
from pivot.labeling.base import FailedEpisode
from pivot.labeling.writers.model import ModelTeacher
from pivot.models.base import ChatAnswer, ChatModel, ChatRequest

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


class PlantedTeacher(ModelTeacher):
    """A teacher on a planted model."""

    name: ClassVar[str] = "planted"

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self.model = PlantedModel(answers)

    @property
    def model_config(self) -> dict[str, Any]:
        return self.model.config

    def make_model(self) -> ChatModel:
        return self.model


def pictures(episodes: Sequence[FailedEpisode]) -> dict[str, bytes]:
    """The encoded frames of recorded episodes by id, by playing them again."""
    found: dict[str, bytes] = {}
    for episode in episodes:
        env: PivotEnv = plugins.load("environments", episode.env).from_settings(dict(episode.env_config))
        frame, _ = env.reset(options={"state": episode.initial_state})
        found[frame_id(frame)] = encode_png(frame)
        for action in episode.actions:
            frame = env.step(env.encode_action(action))[0]
            found[frame_id(frame)] = encode_png(frame)
    return found


def text_of(request: ChatRequest) -> str:
    """All text that a request shows, in order."""
    return "\n".join(part["text"] for message in request.messages for part in message["content"] if "text" in part)
