"""A process whose runs end by a signal at a chosen moment: just before the n-th change that they make on disk.

Started once, it imports everything and then forks a child for each order that it reads, so that a kill costs no start.
An order is a line of JSON: what to do, in which store, with which config or changes, and when to die of what. What a
kill can leave is decided by the moves and removals of files: the content of a file is written under a temporary name,
so between two changes a store looks the same.
"""

import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import obstore
import pivot
from PIL import Image
from pivot.collage import collage
from pivot.core import plugins
from pivot.core.errors import StoreError
from pivot.core.progress import Reporter
from pivot.core.storage import Address, local, parse_address
from pivot.core.storage.lease import LOCK
from pivot.datasets.store.config import env_config, environment
from pivot.flows.engines.local import InProcess
from pivot.flows.relabel import relabel_store
from pivot.insight.probe.records import ProbeSettings
from pivot.insight.probe.run import probe_store
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.flow_runs import PATIENCE

NEVER = 1_000_000
KILLED = "killed"
INTERRUPTED = "interrupted"
FAILED = "failed"
"""The run ended with an error of its own, and could clean up."""
GROUP, PARENT, CHILD = "group", "parent", "child"
"""Process to kill: the run with all its workers, the run alone, or the worker that is about to make the change."""
_FORK = multiprocessing.get_context("fork")


class Victim:
    """The test's side: it sends orders and reads how they ended."""

    def __enter__(self) -> "Victim":
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE)

    def run(
        self,
        action: str,
        root: Address,
        options: dict[str, Any],
        die_at: int | str = NEVER,
        *,
        workers: int = 1,
        how: signal.Signals = signal.SIGKILL,
        who: str = GROUP,
        env: dict[str, str] | None = None,
    ) -> list[str]:
        """Execute one order; return its changes on disk, the last of which the kill prevented.

        Args:
            action: "build", "builds at once", "probe", "export", or one of the kinds of relabelling in
                :func:`_carry_out`.
            root: the store.
            options: the config of a build or the configs of several, the settings of a probe, the store and the format
                of an export into ``root``, the changes of a relabelling.
            die_at: number of the change, counted from 1 over all processes of the run, that is not made any more; or
                the end of its path.
            workers: processes of a build or an export.
            how: what the run dies of: a kill, or Ctrl-C.
            who: which processes of the run a kill ends.
            env: further variables of its environment.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"action": action, "root": str(root), "given": options, "workers": workers, "env": env or {}}
        self._process.stdin.write(json.dumps(order | {"die_at": die_at, "how": int(how), "who": who}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        died = KILLED if how == signal.SIGKILL else INTERRUPTED
        reached = any(_is_it(change, number, die_at) for number, change in enumerate(answer["changes"], 1))
        # A run that lost a worker fails, unless the worker had finished.
        ends = {FAILED, "0"} if who == CHILD else {died}
        assert answer["end"] in (ends if reached else {"0"}), answer
        return answer["changes"]


def _is_it(change: str, number: int, die_at: int | str) -> bool:
    return number == die_at if isinstance(die_at, int) else change.endswith(die_at)


def watch_changes(before: Callable[[str], None], patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Call ``before`` with the kind and place of every change on disk that this process makes from now on.

    With the ``setattr`` of a monkeypatch as ``patch``, until the end of a test.
    """

    def watched(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def announced(*places: Any, **more: Any) -> Any:
            place = places[0].name if name == "exchange" else places[-1]
            before(f"{name} {place}")
            return change(*places, **more)

        return announced

    for name in ("replace", "rename", "unlink", "rmdir"):
        patch(os, name, watched(name, getattr(os, name)))
    patch(local, "_exchange", watched("exchange", local._exchange))
    for name in ("put", "copy", "delete"):
        patch(obstore, name, _requested(before, name, getattr(obstore, name)))


def _requested(before: Callable[[str], None], name: str, change: Callable[..., Any]) -> Callable[..., Any]:
    """Announce requests to an object store, but for those of the lock, which come when they come."""

    def announced(client: Any, place: Any, *more: Any, **options: Any) -> Any:
        if place != LOCK:
            before(f"{name} {place}")
        return change(client, place, *more, **options)

    return announced


# The victim's side


def _die_at(moment: int | str, how: signal.Signals, who: str, report: int) -> None:
    """Report every change of this process and its workers before it is made, and die before a chosen one."""
    made, run = _FORK.Value("q", 0), os.getpid()

    def before(change: str) -> None:
        # The other workers of a pool that lost one are ended wherever they are, also while they count.
        counting = made.get_lock().acquire(timeout=1.0)
        try:
            made.get_obj().value += 1
            os.write(report, f"{change}\n".encode())
            if not _is_it(change, made.get_obj().value, moment):
                return
            if who != CHILD and how == signal.SIGKILL:  # nobody else may make a change meanwhile
                os.killpg(0, how) if who == GROUP else os.kill(run, how)
                time.sleep(60)  # a worker ends as soon as it sees that the run is gone
        finally:
            if counting:
                made.get_lock().release()
        if who == CHILD and os.getpid() == run:
            multiprocessing.active_children()[0].kill()
        else:
            os.kill(os.getpid(), how)

    watch_changes(before)


def _carry_out(action: str, root: Address, options: dict[str, Any], workers: int) -> None:
    if action in ("build", "export"):
        # Workers that are forked need no start; nothing here runs threads yet that a fork would lose.
        multiprocessing.get_context = lambda method=None: _FORK
        if action == "build":
            pivot.build(options, root, workers=workers)
        else:
            pivot.export(options["store"], root, format=options["format"], workers=workers)
    elif action == "builds at once":
        builders = [_FORK.Process(target=_build_in_turn, args=(root, config)) for config in options["configs"]]
        for builder in builders:
            builder.start()
        for builder in builders:
            builder.join()
            assert builder.exitcode == 0
    elif action == "probe":
        probe_store(root, ProbeSettings(**options), Reporter())
    else:
        if action == "relabel without exchange":
            local._renameat2 = lambda: None  # a system whose C library knows no renameat2
        relabel_store(root, options, InProcess(), Reporter())


def _build_in_turn(root: Address, config: dict[str, Any]) -> None:
    """Build until nobody else does, or until the store has grown beyond what is asked for."""
    while True:
        try:
            pivot.build(config, root)
            return
        except StoreError as error:
            if "it holds" in str(error):
                return
            assert "is being written by another run" in str(error), error
            time.sleep(0.01)


def _get_ready() -> None:
    """Import, compile and draw what runs need, so that no child pays for it; without threads, which a fork loses."""
    for name in ("pandas", "pyarrow.pandas_compat", "aiohttp", "openai"):
        importlib.import_module(name)
    Image.init()
    for group in plugins.GROUPS:
        for name in plugins.names(group):
            plugins.load(group, name)
    for name in ("sokoban", "frozenlake"):
        env_type, config = environment(name), env_config(name, {})
        tasks = plan_tasks(env_type, config, 0, 1)
        roll_out_tasks(env_type, config, tasks, ScriptedPolicy(), 2)
        pivot.certify(name, tasks[0].initial_state, ["invalid"], 1)
        frame, _ = env_type(config).reset(seed=0)
        collage([frame] * 25)


def _child(order: dict[str, Any], report: int) -> int:
    """Carry out an order in a process group of its own; return the exit status."""
    os.setpgid(0, 0)
    os.environ.update(order["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _die_at(order["die_at"], signal.Signals(order["how"]), order["who"], report)
    try:
        _carry_out(order["action"], parse_address(order["root"]), order["given"], order["workers"])
    except KeyboardInterrupt:
        return 130
    except StoreError as error:
        assert "a worker process died" in str(error), error
        return 75
    return 0


def _serve() -> None:
    _get_ready()
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            status = 1
            try:
                status = _child(json.loads(line), writing)
            finally:
                if status == 1:
                    traceback.print_exc()
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading) as report:
            changes = report.read().splitlines()
        _, wait_status = os.waitpid(child, 0)
        end = KILLED if os.WIFSIGNALED(wait_status) else str(os.WEXITSTATUS(wait_status))
        end = {"130": INTERRUPTED, "75": FAILED}.get(end, end)
        sys.stdout.write(json.dumps({"changes": changes, "end": end}) + "\n")
        sys.stdout.flush()
    os._exit(0)  # without the seconds that the libraries take to close down


if __name__ == "__main__":
    _serve()
