"""The embedded guidance writer: a stand-in for a teacher model that chooses by a number from the episode's id.

It states the most telling fact, often a second one, names a sign, and gives the first action that is offered.
The same label always gets the same text; different episodes get different choices and wordings.
"""

from collections.abc import Sequence
from typing import Any, ClassVar
from zlib import crc32

from ...core.plugins import Settings
from ..base import Guidance, GuidanceRequest, GuidanceWriter
from ..statements import Choice

VERSION = "9"
"""Version of choices and wordings; any change of a text raises it."""


class TemplateWriter(GuidanceWriter):
    """Chooses guidance without a model; stands in for a teacher model and is named so in every row."""

    name = "template"
    config_type: ClassVar[type[Settings]] = Settings
    is_stand_in: ClassVar[bool] = True

    @property
    def config(self) -> dict[str, Any]:
        """The version of choices and wordings; nothing else decides the texts."""
        return {"version": VERSION}

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Answer ``requests``, in order."""
        written: list[Guidance] = []
        for request in requests:
            offer, number = request.offer, crc32(b"choice" + request.episode.episode_id.encode())
            first, others = offer.facts[0], offer.facts[1:]
            facts = (first, others[(number >> 4) % len(others)]) if others and number % 4 else (first,)
            if number >> 2 & 1:
                facts = facts[::-1]
            sign = offer.signs[(number >> 12) % min(2, len(offer.signs))]
            written.append(Guidance(choice=Choice((sign, *facts, *offer.actions[:1]))))
        return written
