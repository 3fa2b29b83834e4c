"""`pivot deploy --serve --runs N`: the worker has at most N runs at the same time."""

from pathlib import Path
from typing import Any

import pytest
from pivot.tests.flow_runs import config_of
from pivot.tests.flows.test_deployments import Served


@pytest.mark.operations
@pytest.mark.xdist_group("prefect")
@pytest.mark.timeout(1800)
def test_a_worker_runs_no_more_at_a_time_than_it_may(prefect_home: Path, tmp_path: Path) -> None:
    """The deployment itself has no limit: without that of the worker both runs would begin at once."""
    with Served(prefect_home, tmp_path, "--runs", "1") as served:
        assert served.deployment("build")["global_concurrency_limit"] is None
        config = config_of({"sokoban": 12}, rollouts=4)
        runs = [served.start("build", config=config, out=f"store-{number}", workers=1) for number in range(2)]
        ended: list[dict[str, Any]] = [served.completed(run) for run in runs]
        first, second = sorted(ended, key=lambda run: run["start_time"])
        assert second["start_time"] >= first["end_time"]
