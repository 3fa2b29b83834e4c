"""Verify that the parts of a store form one dataset, without duplicate rows."""

from ..config import environment
from ..export import dataset_file
from ..parquet import read_table
from ..parts import members_of, unlike
from ..schema import DATASET, EPISODES
from ..split import SIDES
from ..store import DATASET_FOLDER, Store


def whole_problems(store: Store) -> list[str]:
    """Check that parts agree in what all share, that no group is in two of them, and no level on both sides (4)."""
    problems: list[str] = []
    owner: dict[str, str] = {}
    sides: dict[tuple[str, str], set[str]] = {}
    for folder, member in members_of(store).items():
        where, doubled = folder or "./", 0
        problems += [f"{where}: {each}" for each in unlike(member, store)]
        for shard in member.config.shards():
            kind = environment(shard.env)
            groups = member.read(EPISODES, shard, ["group_id"])["group_id"].unique().to_pylist()
            doubled += sum(owner.setdefault(group, where) != where for group in groups)
            for side in SIDES:
                file = dataset_file(DATASET_FOLDER, DATASET, shard, side)
                if member.storage.stat(file) is not None:
                    states = read_table(member.storage, file, DATASET, ["initial_state"])["initial_state"]
                    for state in states.unique().to_pylist():
                        sides.setdefault((shard.env, kind.canonical_state(state)), set()).add(side)
        if doubled:
            problems.append(f"{where}: {doubled} of its groups are in an earlier part, too")
    both = sum(len(each) > 1 for each in sides.values())
    if store.config.split == "task" and both:
        problems.append(f"{both} levels are on both sides of the split in different parts")
    return problems
