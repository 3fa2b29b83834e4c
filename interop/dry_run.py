"""Description of the first episode of a source, for ``pivot import --dry-run``."""

from collections.abc import Callable

from ..core.errors import ConfigError
from ..core.identity import canonical_json
from ..rollouts.policies.imported import Compared
from .base import UnreadableError
from .levels import LeftOutError, recover_task, slots_of
from .reading import Reading
from .replay import Pixels, replay


def understood(reading: Reading, describe: Callable[[str, str], None]) -> None:
    """Describe how the first episode was parsed, for a dry run; ``describe`` receives names and values."""
    place = next(iter(reading.importer.places(reading.source)), None)
    if place is None:
        raise ConfigError(f"{reading.source} holds no episode")
    describe("place", place.label)
    try:
        episode = reading.importer.read(reading.source, place)
        plan = reading.plan_of(episode)
        describe("environment", f"{episode.env}, horizon {plan.env.config.horizon} actions")
        task, source = recover_task(plan.env, episode, reading.pictures.frame)
        describe(f"level (from the {source})", task.initial_state)
        slots = slots_of(plan.env, episode)
        describe("actions", ", ".join("-" if slot.action is None else slot.action.name for slot in slots))
        agreement = replay(plan.env, task, episode, slots, Pixels(reading.pictures.frame_id, reading.pictures.frame))
        for kind in Compared:
            word = {True: "agree", False: f"differ: {agreement.first.get(kind)}", None: "not recorded"}[
                getattr(agreement, kind)
            ]
            describe(f"{kind}, recorded against replayed", word)
        other = dict(episode.other_fields())
        describe("other fields", canonical_json(other) if other else "none")
    except (LeftOutError, UnreadableError) as error:
        describe("left out", str(error))
