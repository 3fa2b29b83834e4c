"""The contracts of policies and guidance writers."""

import json
from typing import Any, ClassVar

from ..core.plugins import WORD
from ..environments.turns import StudentPrompt
from ..labeling.base import Guidance, GuidanceRequest
from ..labeling.label import guidance_request
from ..rollouts.base import Status
from ..rollouts.loop import roll_out_tasks
from .episodes import FailedEpisodes, Labels


class _Stored:
    """Promises of policies and writers alike."""

    def make(self) -> Any:
        """Make the part."""
        raise NotImplementedError("override make: return the part to test")

    def test_it_is_named_and_its_config_is_stored(self) -> None:
        part = self.make()
        assert WORD.fullmatch(part.name), f"the name {part.name!r} must be lower-case letters, digits and underscores"
        assert json.loads(json.dumps(part.config)) == part.config, "the config must be JSON"
        assert self.make().config == part.config, "two parts made alike must have one config"
        assert part.misfit() is None, "the class breaks its contract"


class PolicyContract(_Stored, FailedEpisodes):
    """Set the environment and its prompt, return the policy from ``make``, and inherit."""

    prompt: ClassVar[StudentPrompt]
    repeatable: ClassVar[bool] = True
    """Whether equal turns get equal replies; a model behind a server may not guarantee it."""
    rollouts: ClassVar[int] = 3
    seeds = (0, 1)

    def episodes(self, concurrency: int) -> list[tuple[Status, tuple[str, ...]]]:
        """Roll out every level with a policy of its own; return how each episode ended and its replies."""
        ends = []
        for settings in self.settings:
            config = self.env_type.config_type(**settings)
            tasks = [self.env_type.make_task(config, seed) for seed in self.seeds]
            done = roll_out_tasks(
                self.env_type, config, tasks, self.make(), self.rollouts, concurrency=concurrency, prompt=self.prompt
            )
            episodes = [episode for task in done for episode in task.episodes]
            ends += [(each.status, tuple(step.response for step in each.steps)) for each in episodes]
        return ends

    def test_every_episode_is_played_to_its_end(self) -> None:
        for status, replies in self.episodes(64):
            assert status is Status.COMPLETE, "every episode must be complete"
            assert replies, "every episode must have replies"

    def test_replies_depend_on_the_turn_alone(self) -> None:
        if self.repeatable:
            assert self.episodes(1) == self.episodes(64), "replies must not depend on concurrency"


class WriterContract(_Stored, Labels):
    """Set ``env_type`` and ``solver_type``, return the writer from ``make``, and inherit."""

    pictures = True
    repeatable: ClassVar[bool] = True
    """Whether equal requests get equal texts."""

    def requests(self) -> list[GuidanceRequest]:
        """Return one request for every label."""
        profile = self.env_type.profile
        return [guidance_request(profile, each.episode, verdict, each.frames) for each, verdict in self.labelled()]

    def test_every_request_gets_one_answer(self) -> None:
        requests = self.requests()
        answers = self.make().write(requests)
        assert len(answers) == len(requests), "every request needs one answer"
        for answer in answers:
            assert isinstance(answer, Guidance), "every answer must be a Guidance"
            assert answer.choice or answer.text.strip() or answer.problem, "an answer needs a choice, text or problem"
            assert answer.problem is None or WORD.fullmatch(answer.problem.kind), "a kind is letters, digits and _"
        assert self.make().write([]) == [], "no requests must give no answers"

    def test_choices_are_offered(self) -> None:
        requests = self.requests()
        for request, answer in zip(requests, self.make().write(requests), strict=True):
            chosen = answer.choice.statements if answer.choice else ()
            assert all(each in request.offer for each in chosen), "a choice must be among the offered statements"

    def test_an_answer_depends_on_its_request_alone(self) -> None:
        if self.repeatable:
            requests = self.requests()
            answers = [(each.text, each.choice) for each in self.make().write(requests)]
            back = [(each.text, each.choice) for each in self.make().write(requests[::-1])]
            assert back[::-1] == answers, "answers must not depend on the order of requests"
