"""``pivot compare``: two stores side by side."""

from itertools import groupby

from ..insight.compare import HEADER, compare_stores, screen_rows
from .console import out, show_table
from .from_config import Flag, Form, from_config
from .options import AddressField, Options


class CompareOptions(Options):
    """Options of ``pivot compare``."""

    old: AddressField
    """Folder of a finished store, such as last week's."""
    new: AddressField
    """Folder of the store to compare with OLD."""


FORM = Form("compare", CompareOptions, {"old": Flag(argument="OLD"), "new": Flag(argument="NEW")})


@from_config(FORM, file=False)
def compare(options: CompareOptions) -> None:
    """Show what changed from one store to another: success, zero-variance groups, modes, pivots, slack.

    In brackets are 95 % intervals over levels. Levels that are in both stores (equal state and instruction) are
    paired, which gives narrower intervals of the difference. * marks an interval of the difference that excludes 0,
    over at least 20 levels; among twenty rows one does so by chance.

    The rollouts of two runs of pivot train rl are stores, too: RUN/rollouts.

    [bold]Example[/]

    pivot compare runs/monday runs/tuesday
    """
    comparisons = compare_stores(options.old, options.new)
    out.print(f"{options.old} (old) against {options.new} (new)")
    for env, some in groupby(comparisons, lambda each: each.env):
        show_table(env, HEADER, screen_rows(list(some)))
    out.print("*: the 95 % confidence interval of the difference excludes 0 (needs 20 levels)")
    for env, levels, common in dict.fromkeys((each.env, each.levels, each.common) for each in comparisons):
        if common < levels:
            out.print(f"{env}: only {common} of {levels} levels are in both stores, which widens the intervals")
