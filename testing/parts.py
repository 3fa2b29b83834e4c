"""The contracts of policies and guidance writers."""

import json
from typing import ClassVar

from ..core.plugins import WORD
from ..environments.turns import StudentPrompt
from ..labeling.base import Guidance, GuidanceRequest, GuidanceWriter
from ..labeling.label import guidance_request
from ..rollouts.base import Policy, Status
from ..rollouts.loop import roll_out_tasks
from .episodes import FailedEpisodes, Labels


class PolicyContract(FailedEpisodes):
    """Set the environment and its prompt, say how the policy is made, and inherit."""

    prompt: ClassVar[StudentPrompt]
    repeatable: ClassVar[bool] = True
    """Whether the same turns get the same replies; a model behind a server may not promise it."""
    rollouts: ClassVar[int] = 3
    seeds = (0, 1)

    def make(self) -> Policy:
        """Make the policy."""
        raise NotImplementedError("say how the policy is made")

    def episodes(self, concurrency: int) -> list[tuple[Status, tuple[str, ...]]]:
        """Roll out every level with a policy of its own; return how each episode ended and its replies."""
        ends = []
        for settings in self.settings:
            config = self.env_type.config_type(**settings)
            tasks = [self.env_type.make_task(config, seed) for seed in self.seeds]
            done = roll_out_tasks(
                self.env_type, config, tasks, self.make(), self.rollouts, concurrency=concurrency, prompt=self.prompt
            )
            ends += [
                (episode.status, tuple(step.response for step in episode.steps))
                for task in done
                for episode in task.episodes
            ]
        return ends

    def test_it_is_named_and_its_config_is_stored(self) -> None:
        policy = self.make()
        assert WORD.fullmatch(policy.name), (
            f"the name {policy.name!r} must be lower-case letters, digits and underscores"
        )
        assert json.loads(json.dumps(policy.config)) == policy.config, "the config must be JSON"
        assert self.make().config == policy.config, "two policies made alike must have one config"
        assert policy.misfit() is None, "the class breaks its contract"

    def test_every_episode_is_played_to_its_end(self) -> None:
        for status, replies in self.episodes(64):
            assert status is Status.COMPLETE, "every episode must be complete"
            assert replies, "every episode must have replies"

    def test_replies_depend_on_the_turn_alone(self) -> None:
        if self.repeatable:
            assert self.episodes(1) == self.episodes(64), "replies must not depend on concurrency"


class WriterContract(Labels):
    """Contract of a writer: set ``env_type`` and ``solver_type`` in a subclass, and return the writer from ``make``."""

    pictures = True
    repeatable: ClassVar[bool] = True
    """Whether the same request gets the same text."""

    def make(self) -> GuidanceWriter:
        """Make the writer."""
        raise NotImplementedError("override make: return the writer to test")

    def requests(self) -> list[GuidanceRequest]:
        """Return one request for every label."""
        profile = self.env_type.profile
        return [guidance_request(profile, each.episode, verdict, each.frames) for each, verdict in self.labelled()]

    def test_it_is_named_and_its_config_is_stored(self) -> None:
        writer = self.make()
        assert WORD.fullmatch(writer.name), (
            f"the name {writer.name!r} must be lower-case letters, digits and underscores"
        )
        assert json.loads(json.dumps(writer.config)) == writer.config, "the config must be JSON"
        assert writer.misfit() is None, "the class breaks its contract"

    def test_every_request_gets_one_answer(self) -> None:
        requests = self.requests()
        answers = self.make().write(requests)
        assert len(answers) == len(requests), "every request needs one answer"
        for answer in answers:
            assert isinstance(answer, Guidance), "every answer must be a Guidance"
            assert answer.choice is not None or answer.text.strip() or answer.problem, (
                "an answer needs a choice, a text or a problem"
            )
            assert answer.problem is None or WORD.fullmatch(answer.problem.kind), (
                "the kind of a problem must be lower-case letters, digits and underscores"
            )
        assert self.make().write([]) == [], "no requests must give no answers"

    def test_choices_are_offered(self) -> None:
        requests = self.requests()
        for request, answer in zip(requests, self.make().write(requests), strict=True):
            if answer.choice is not None:
                assert [each for each in answer.choice.statements if each not in request.offer] == [], (
                    "a choice must be among the offered statements"
                )

    def test_an_answer_depends_on_its_request_alone(self) -> None:
        if self.repeatable:
            requests = self.requests()
            answers = [(answer.text, answer.choice) for answer in self.make().write(requests)]
            assert [(each.text, each.choice) for each in self.make().write(requests[::-1])] == answers[::-1], (
                "answers must not depend on the order of requests"
            )
