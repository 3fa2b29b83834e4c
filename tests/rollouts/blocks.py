"""Groups of rollouts that are compared with each other, computed in Python to check the SQL view `groups`."""

from collections.abc import Iterable
from dataclasses import dataclass

from pivot.rollouts.base import GROUP_SIZE, Episode, Status


@dataclass(frozen=True, slots=True)
class Groups:
    """Full blocks, and how many episodes are in none."""

    blocks: tuple[tuple[Episode, ...], ...]
    dropped: int
    """Complete episodes of blocks that stayed short."""


def form_groups(episodes: Iterable[Episode], size: int = GROUP_SIZE) -> Groups:
    """Cut the complete episodes of every group id into blocks of ``size``, in order of sample index.

    A group id already separates task, goal, evaluation set, policy and settings; pass the episodes of one run only.
    """
    by_group: dict[str, list[Episode]] = {}
    for episode in episodes:
        if episode.status is Status.COMPLETE:
            by_group.setdefault(episode.group_id, []).append(episode)
    blocks: list[tuple[Episode, ...]] = []
    dropped = 0
    for members in by_group.values():
        members.sort(key=lambda episode: episode.sample_idx)
        full = len(members) - len(members) % size
        blocks.extend(tuple(members[first : first + size]) for first in range(0, full, size))
        dropped += len(members) - full
    return Groups(tuple(blocks), dropped)
