"""Render the Student prompt of a turn once and name it by the digest of its messages.

Messages name images by frame id, so equal messages mean that the model saw the same input. One cache serves the
episodes of one task: if a prompt depends on the frame alone, a repeated frame costs one dictionary look-up.
"""

from collections.abc import Hashable, Sequence

from ..core.identity import digest
from ..core.messages import PromptMessages
from ..environments.base import EnvProfile, Task
from ..environments.turns import HistoryEntry, StudentPrompt


def render_student(
    prompt: StudentPrompt,
    profile: EnvProfile,
    task: Task,
    *,
    t: int,
    frame_id: str,
    history: Sequence[HistoryEntry] = (),
    observation: str = "",
) -> PromptMessages:
    """Return the messages of turn ``t`` with their hash; the arguments are those of :meth:`StudentPrompt.render`."""
    messages = prompt.render(profile, task, t=t, frame_id=frame_id, history=history, observation=observation)
    return PromptMessages(digest(messages), prompt.template, prompt.version, messages)


class PromptCache:
    """Rendered prompts of one task; ``prompts`` maps hashes to distinct prompts."""

    def __init__(self, prompt: StudentPrompt, profile: EnvProfile, task: Task) -> None:
        """Start empty."""
        self._prompt = prompt
        self._profile = profile
        self._task = task
        self._by_key: dict[Hashable, PromptMessages] = {}
        self.prompts: dict[str, PromptMessages] = {}

    def at(self, t: int, frame_id: str, history: Sequence[HistoryEntry], observation: str) -> PromptMessages:
        """Return the prompt of one turn, rendered at most once per task."""
        key = frame_id if self._prompt.frame_only else (t, frame_id, tuple(history), observation)
        rendered = self._by_key.get(key)
        if rendered is None:
            rendered = render_student(
                self._prompt,
                self._profile,
                self._task,
                t=t,
                frame_id=frame_id,
                history=history,
                observation=observation,
            )
            self._by_key[key] = rendered
            self.prompts.setdefault(rendered.prompt_hash, rendered)
        return rendered
