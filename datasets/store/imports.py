"""The table of imports, which only a store of imported episodes has."""

from ...rollouts.policies.imported import Imported
from .schema import TableSchema, columns_of

IMPORTS = TableSchema(
    "imports",
    "One row per episode of the source of an imported store, those left out included; other stores have none.",
    columns_of(Imported),
)
