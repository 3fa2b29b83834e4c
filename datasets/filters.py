"""Names of the filters that judge the labels of each environment: defaults, and those of the release without the field.

Stores of the first release judged every label with all installed filters and did not record them, and the digest of a
shard's label inputs listed all of them. ``RELEASED`` keeps both readable.
"""

from collections.abc import Sequence

from .. import plugins
from ..labeling.base import Filter

RELEASED: dict[str, tuple[str, frozenset[str] | None]] = {
    "frozenlake_facts": ("FrozenLakeFactsFilter", frozenset({"frozenlake"})),
    "grid_advice": ("GridAdviceFilter", frozenset({"sokoban", "frozenlake"})),
    "guidance": ("GuidanceFilter", None),
    "mode": ("ModeFilter", None),
    "navigation_facts": ("NavigationFactsFilter", frozenset({"navigation"})),
    "outcome": ("OutcomeFilter", None),
    "primitiveskill_facts": ("PrimitiveSkillFactsFilter", frozenset({"primitiveskill"})),
    "replay": ("ReplayFilter", None),
    "sokoban_deadlock": ("SokobanDeadlockFilter", frozenset({"sokoban"})),
    "sokoban_facts": ("SokobanFactsFilter", frozenset({"sokoban"})),
    "svg_facts": ("SvgFactsFilter", frozenset({"svg"})),
    "target": ("TargetFilter", None),
}
"""Filters of the release whose ``run.json`` names none: class and environments by registered name."""


RETIRED = frozenset(
    {
        "frozenlake_facts",
        "grid_advice",
        "navigation_facts",
        "outcome",
        "primitiveskill_facts",
        "sokoban_facts",
        "svg_facts",
    }
)
"""Released filters that judged free texts by word lists. Configs of old stores name them; none of them runs."""


def filter_type(name: str) -> type[Filter]:
    """Load a filter.

    Raises:
        PluginError: the filter is unknown or cannot be used.
    """
    return plugins.load("filters", name)


def _judges(environments: frozenset[str] | None, env: str) -> bool:
    return environments is None or env in environments


def default_filters(env: str) -> tuple[str, ...]:
    """Return the names of the installed filters that judge an environment, sorted.

    Raises:
        PluginError: a filter cannot be used.
    """
    installed = (name for name in plugins.names("filters") if name not in RETIRED)
    return tuple(name for name in installed if _judges(filter_type(name).environments, env))


def released_filters(env: str) -> tuple[str, ...]:
    """Return the filters of a store whose ``run.json`` names none; a third party's that name its environment count.

    Raises:
        PluginError: a filter cannot be used.
    """
    released = {name for name, (_, environments) in RELEASED.items() if _judges(environments, env)}
    others = (name for name in plugins.names("filters") if not plugins.is_ours("filters", name))
    return tuple(sorted(released.union(name for name in others if env in (filter_type(name).environments or ()))))


def filter_classes(env: str, chosen: Sequence[str]) -> list[str]:
    """Return the class names that the digest of label inputs lists, in the order of the registered names.

    Released filters for other environments are listed, too, so that the digests of finished stores stay what they are.
    """
    unheard = {name: kind for name, (kind, environments) in RELEASED.items() if not _judges(environments, env)}
    gone = {name: kind for name, (kind, _) in RELEASED.items() if name in RETIRED and name in chosen}
    classes = unheard | gone | {name: filter_type(name).__qualname__ for name in chosen if name not in RETIRED}
    return [classes[name] for name in sorted(classes)]
