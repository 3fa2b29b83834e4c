"""Find the parts of a store that can become one, and the config of the store that holds their rows.

A run has one policy, teacher and settings, so parts that differ there stay parts. Levels of several seeds may be in one
store: its config lists the seeds, and every row keeps its run id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..datasets.config import EnvRun, RunConfig
from ..datasets.export import index_of_level, moved_level_among, moved_level_of
from ..datasets.parts import members_of
from ..datasets.schema import EPISODES
from ..datasets.store import Store
from ..errors import ConfigError
from .pipeline import deciding

_MAY_DIFFER = ("environments", "filters", "solvers", "seed", "part", "tasks_per_shard")
"""Fields of the config that are compared per environment, or not at all."""


@dataclass(frozen=True, slots=True)
class Group:
    """Parts of a store that become one part, and its config."""

    members: Mapping[int, Store]
    """The parts by their numbers, in order."""
    config: RunConfig

    @property
    def first(self) -> int:
        """Number of its first part."""
        return next(iter(self.members))


def groups_of(store: Store, *, merge: bool) -> list[Group]:
    """Return the parts of a store as groups: as few as possible with ``merge``, else each part alone.

    Raises:
        StoreError: a part is missing or unfinished, or its rows cannot be read.
        ConfigError: the split is by episode, so merging would draw the records of the validation split again.
    """
    members = {member.config.part: member for member in members_of(store).values()}
    alone = [Group({number: member}, member.config) for number, member in members.items()]
    if not merge:
        return alone
    if store.config.split == "episode" and len(members) > 1:
        raise ConfigError(
            f"merge: {store.root} is split by episode, so the validation records of merged parts would be drawn again; "
            f"split it by task first (pivot relabel {store.root} --split task), or compact it without merging"
        )
    groups: list[tuple[dict[int, Store], dict[str, Any]]] = []
    for number, member in members.items():
        traits = _traits(member)
        for others, shared in groups:
            if all(shared.get(name, trait) == trait for name, trait in traits.items()):
                others[number] = member
                shared.update(traits)
                break
        else:
            groups.append(({number: member}, traits))
    if len(groups) == len(members):
        return alone
    return [Group(group, _merged([*group.values()], number)) for number, (group, _) in enumerate(groups)]


def _traits(store: Store) -> dict[str, Any]:
    """Return what the parts of a group agree in: of the run, and of every environment that they have in common."""
    config = store.config
    texts: dict[str, set[str]] = {name: set() for name in config.environments}
    for shard in config.shards():
        texts[shard.env] |= {*store.read(EPISODES, shard, ["policy_config"])["policy_config"].unique().to_pylist()}
    shared = {name: deciding(getattr(config, name)) for name in RunConfig.model_fields if name not in _MAY_DIFFER}
    return {"run": shared} | {
        f"environment {name}": (run.settings, config.filters.get(name), config.solvers.get(name), texts[name])
        for name, run in config.environments.items()
    }


def _merged(stores: Sequence[Store], number: int) -> RunConfig:
    """Return the config of part ``number`` with the levels of these stores, one after the other."""
    first = stores[0].config
    if len(stores) == 1:
        return first.model_copy(update={"part": number})
    environments: dict[str, EnvRun] = {}
    for name in dict.fromkeys(name for store in stores for name in store.config.environments):
        owners = [store for store in stores if name in store.config.environments]
        places = [place for each in owners for place in each.config.environments[name].places(each.config.seed)]
        run = EnvRun.of(places, first.seed, owners[0].config.environments[name].settings)
        environments[name] = run if number else run.model_copy(update={"moved": _moved(stores, name)})
    return first.model_copy(
        update={
            "environments": environments,
            "part": number,
            **{
                field: {name: each for store in stores for name, each in getattr(store.config, field).items()}
                for field in ("filters", "solvers")
            },
        }
    )


def _moved(stores: Sequence[Store], env: str) -> int | None:
    """Return :attr:`.EnvRun.moved` for merged parts: every level stays in its split."""
    first = stores[0]
    moved = moved_level_of(first, env) if env in first.config.environments else None
    shards = [(store, shard) for store in stores for shard in store.config.shards() if shard.env == env]
    if moved_level_among(shards) == moved:
        return None
    return -1 if moved is None else index_of_level(first, env, moved)
