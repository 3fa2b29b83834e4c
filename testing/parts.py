"""The contracts of policies and guidance writers."""

import json
from typing import ClassVar

from ..labeling.base import Guidance, GuidanceRequest, GuidanceWriter
from ..labeling.label import guidance_request
from ..plugins import WORD
from ..rollouts.base import Policy, Status, StudentPrompt
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
        assert WORD.fullmatch(policy.name)
        assert json.loads(json.dumps(policy.config)) == policy.config
        assert self.make().config == policy.config
        assert policy.misfit() is None

    def test_every_episode_is_played_to_its_end(self) -> None:
        for status, replies in self.episodes(64):
            assert status is Status.COMPLETE
            assert replies

    def test_replies_depend_on_the_turn_alone(self) -> None:
        if self.repeatable:
            assert self.episodes(1) == self.episodes(64)


class WriterContract(Labels):
    """Set environment and solver, say how the writer is made, and inherit."""

    pictures = True
    repeatable: ClassVar[bool] = True
    """Whether the same request gets the same text."""

    def make(self) -> GuidanceWriter:
        """Make the writer."""
        raise NotImplementedError("say how the writer is made")

    def requests(self) -> list[GuidanceRequest]:
        """Return one request for every label."""
        profile = self.env_type.profile
        return [guidance_request(profile, each.episode, verdict, each.frames) for each, verdict in self.labelled()]

    def test_it_is_named_and_its_config_is_stored(self) -> None:
        writer = self.make()
        assert WORD.fullmatch(writer.name)
        assert json.loads(json.dumps(writer.config)) == writer.config
        assert writer.misfit() is None

    def test_every_request_gets_one_answer(self) -> None:
        requests = self.requests()
        answers = self.make().write(requests)
        assert len(answers) == len(requests)
        for answer in answers:
            assert isinstance(answer, Guidance)
            assert answer.choice is not None or answer.text.strip() or answer.problem
            assert answer.problem is None or WORD.fullmatch(answer.problem.kind)
        assert self.make().write([]) == []

    def test_choices_are_offered(self) -> None:
        requests = self.requests()
        for request, answer in zip(requests, self.make().write(requests), strict=True):
            if answer.choice is not None:
                assert [each for each in answer.choice.statements if each not in request.offer] == []

    def test_an_answer_depends_on_its_request_alone(self) -> None:
        if self.repeatable:
            requests = self.requests()
            answers = [(answer.text, answer.choice) for answer in self.make().write(requests)]
            assert [(each.text, each.choice) for each in self.make().write(requests[::-1])] == answers[::-1]
