"""A check of the weights of a server after every hand-over.

The server answers the first turns of some levels, and the trainer computes the log-probabilities of the replies, too.
If the two differ on average by more than rounding, the server has other weights or stale caches, and the run stops;
otherwise the only sign would be a policy that learns a little worse.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ....core.errors import TrainingError
from ....environments.turns import Turn
from ....models.base import ChatModel, ChatRequest, Sampling
from ....models.extras import need
from ...config import EXTRA
from ...encode import Encoder
from ..scoring import Row, Scorer
from .base import answer_all

torch: Any = need("torch", EXTRA)

PROBE_TURNS, PROBE_TOKENS = 4, 16
TOLERANCES = {True: 0.05, False: 1e-3}
"""Largest mean difference in nats due to rounding, in bfloat16 (True) and float32 (False)."""


class Probe:
    """A check that server and trainer compute the same log-probabilities, on fixed prompts with pictures."""

    def __init__(
        self, encoder: Encoder, turns: Sequence[Turn], connect: Callable[[str], ChatModel], *, half: bool
    ) -> None:
        """Use the prompts of ``turns``.

        Args:
            encoder: encoder of the trainer.
            turns: turns of different levels.
            connect: returns the server at an address as a model.
            half: whether the trainer computes in bfloat16.
        """
        self._scorer, self._connect, self._half = Scorer(encoder, half=half), connect, half
        self._prompts = [turn.prompt for turn in turns]
        for turn in turns:
            self._scorer.pictures |= turn.images
        self._requests = [
            ChatRequest(
                request_id=f"probe-{number}",
                episode_id="probe",
                t=0,
                role="student",
                messages=prompt.messages,
                images=self._scorer.pictures,
                prompt_hash=prompt.prompt_hash,
                sampling=Sampling(max_tokens=PROBE_TOKENS, chat_template_kwargs=encoder.template),
                seed=number,
            )
            for number, prompt in enumerate(self._prompts)
        ]

    def check(self, model: Any, url: str) -> float:
        """Return the mean difference between the server and the trainer, in nats per token.

        Raises:
            TrainingError: it exceeds the tolerance, or the server returns no tokens.
        """
        difference = self.difference(model, url)
        if difference > TOLERANCES[self._half]:
            raise TrainingError(
                f"the server's log-probabilities differ from the trainer's by {difference:.4f} nats per token on the "
                f"same prompts, expected at most {TOLERANCES[self._half]:g}: it has other weights, stale caches, or "
                "computes in another precision; compare --server-command with the precision of the run, then run the "
                "same command with --resume"
            )
        return difference

    def difference(self, model: Any, url: str) -> float:
        """Return the mean distance between log-probabilities of a server's replies, its own and the scorer's, in nats.

        Raises:
            TrainingError: the server returns no tokens or no log-probabilities.
        """
        rows: list[Row] = []
        theirs: list[float] = []
        for prompt, answer in zip(self._prompts, answer_all(self._connect(url), self._requests), strict=True):
            if isinstance(answer, Exception) or not answer.token_ids or answer.logprobs is None:
                reason = answer if isinstance(answer, Exception) else "a reply without token ids or log-probabilities"
                raise TrainingError(
                    f"{url}: found {reason}, expected token ids with their log-probabilities; serve with a current vLLM"
                )
            rows.append(Row(prompt, answer.token_ids))
            theirs += answer.logprobs
        with torch.no_grad():
            ours = self._scorer(model.eval(), rows).cpu()
        return (torch.tensor(theirs) - ours).abs().mean().item()
