"""The views that PIVOT derives from its tables: each declared once, in ``views.yaml``.

The statement, the reference in ``docs/reference/store.md`` and the names for queries all come from :data:`DERIVED`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...core.data import load_data
from ...rollouts.base import GROUP_SIZE

_GROUP_KEY = "env, run_id, group_id, policy, policy_config, env_config"
"""A group id already separates policies and settings; imported rows are held to the same."""


@dataclass(frozen=True, slots=True)
class View:
    """One view: what a row of it is, what its columns mean, and how it is made."""

    doc: str
    sql: str
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Meaning of every column that no table declares; empty where the columns are those of tables."""
    by_shard: bool = False
    """Whether the rows of all shards together are the rows of the store: what a query needs of such a view is read
    once, shards at a time, and kept in memory while the store is open (:mod:`pivot.datasets.sql.views`)."""


DERIVED: dict[str, View] = {}
for _name, _view in load_data(__file__, "views.yaml").items():
    _sql = _view["sql"].replace("GROUP_KEY", _GROUP_KEY).replace("GROUP_SIZE", str(GROUP_SIZE))
    DERIVED[_name] = View(**_view | {"sql": _sql})
