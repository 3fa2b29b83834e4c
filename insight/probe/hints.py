"""The hints of arm ``self``: the policy's own model as guidance writer about its failures.

A model writes the hints of many shards together, before the first retry, so that no retry waits for one. An embedded
policy has no model; the template replaces it.
"""

from collections.abc import Mapping, Sequence

from ...datasets.store.config import PartConfig, Shard
from ...datasets.store.run import Run
from ...datasets.store.store import Store, shard_frames, stored_failures
from ...labeling.base import UNANSWERED, GuidanceWriter
from ...labeling.label import label_episodes

EMBEDDED_WRITER = "template"
_SHARDS_AT_ONCE = 16
"""Shards whose hints are requested together: two thousand failures, and a hundred megabytes of pictures."""


def own_writer(store: Store) -> GuidanceWriter:
    """Return the writer of arm ``self``: the model of the store's policy, or the template for an embedded policy."""
    own = store.config.policy if store.run.served else PartConfig(name=EMBEDDED_WRITER)
    return Run(store.config.model_copy(update={"teacher": own})).writer()


def own_hints(store: Store, shards: Sequence[Shard], earlier: Mapping[str, str]) -> dict[str, str]:
    """Return the hints of arm ``self`` for the failures of some shards, by episode.

    A hint is empty if the answer was unusable. A failure without an answer is missing; the next run asks again.

    Args:
        store: the store.
        shards: shards of any environments.
        earlier: hints of earlier runs, which are kept.

    Raises:
        ServerGoneError: the model stopped answering.
        StoreError: a table cannot be read.
    """
    config, writer = store.config, own_writer(store)
    hints = dict(earlier)
    for env in config.environments:
        mine = [shard for shard in shards if shard.env == env]
        for first in range(0, len(mine), _SHARDS_AT_ONCE):
            some = mine[first : first + _SHARDS_AT_ONCE]
            episodes = [
                episode
                for shard in some
                for episode in stored_failures(store, shard)
                if episode.episode_id not in earlier
            ]
            frames: dict[str, bytes] = {}
            for shard in some if episodes and writer.needs_pictures else ():
                frames |= shard_frames(store, shard)
            labels = label_episodes(
                episodes,
                store.run.env(env).solver(),
                writer,
                [],
                str(config.label_version),
                config.target_vocabulary,
                frames,
            )
            for label in labels:
                if all(reason.kind != UNANSWERED for reason in label.reject_reasons):
                    hints[label.episode_id] = label.failure_reason or ""
    return hints
