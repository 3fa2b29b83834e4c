"""Check that the tests find defects: plant about 60, one at a time, in a copy of the tree, and count how many fail.

A mutant is a word diff in git's notation, ``[-old-]{+new+}``, with enough context to match once. The search covers all
files, so files may move. The area of a mutant selects its tests, the most specific first, up to the first failure; a
test that times out counts as a failure. Every mutant starts from the same clean copy with its compiled code.

``make test WHAT=mutants`` runs all; ``python -m pivot.tests.mutate --only sokoban`` runs mutants with that word in
their name. The exit status is 1 if more than three survive.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
NOT_SHIPPED = ("tests", "benchmarks", "docs")
MAY_SURVIVE = 3
UNHURRIED = "not long and not plants and not train and not serving and not maniskill"


@dataclass(frozen=True)
class Area:
    """An area of code: its room, and its tests with the most specific first."""

    room: str
    tests: tuple[str, ...]


AREAS = {
    "sokoban": Area(
        "solvers",
        (
            "testing/test_contracts.py",
            "solvers/test_distance_maps.py",
            "solvers/test_text.py",
            "solvers/test_properties.py",
            "solvers/test_oracle.py",
            "environments/test_sokoban.py",
        ),
    ),
    "frozenlake": Area(
        "solvers",
        (
            "testing/test_contracts.py",
            "solvers/test_distance_maps.py",
            "solvers/test_text.py",
            "solvers/test_properties.py",
            "solvers/test_oracle.py",
        ),
    ),
    "navigation": Area("solvers", ("solvers/test_navigation.py", "solvers/test_bounds.py")),
    "primitiveskill": Area("solvers", ("solvers/test_primitiveskill.py", "solvers/test_primitiveskill_bounds.py")),
    "svg": Area("solvers", ("solvers/test_svg.py",)),
    "game-proof": Area("solvers", ("solvers/test_puzzle_proofs.py", "solvers/test_oracle.py")),
    "filter": Area("filters", ("labeling/test_filters.py", "labeling/test_*.py", "labeling/test_label.py")),
    "claims": Area("filters", ("labeling/test_filters.py", "labeling/test_text.py", "labeling/test_writers.py")),
    "guidance": Area("filters", ("labeling/test_writers.py", "flows/test_writers.py")),
    "replay": Area(
        "filters", ("labeling/test_filters.py", "labeling/test_broken_environment.py", "labeling/test_*.py")
    ),
    "files": Area("storage", ("core/test_files.py", "flows/test_disks.py")),
    "parquet": Area("storage", ("dataset/test_parquet.py", "core/test_files.py", "dataset/test_readers.py")),
    "store": Area("storage", ("dataset/test_readers.py", "cli/test_reading.py")),
    "commit": Area("storage", ("flows/test_relabel.py",)),
    "resume": Area("storage", ("flows/test_pending.py", "flows/test_build.py", "flows/test_relabel.py")),
    "verify": Area(
        "verify",
        (
            "dataset/test_verify_store.py",
            "dataset/test_verify.py",
            "flows/test_writers.py",
            "dataset/test_plants.py",
        ),
    ),
    "views": Area("verify", ("dataset/test_views.py",)),
}

DIFFS = {
    "sokoban": {
        "safe-action-too-late": "budget = horizon[- - 1-] - pivot",
        "box-at-rest-on-target": "off_target |= stuck[i][- & ~board.masks[TARGETS * words + i]-]",
        "blocked-by-one-side": "has(board.masks, LIVE * words, one) [-or-]{+and+} has(board.masks, LIVE * words, two)",
        "depth-of-first-entry": "if space.starts[middle] [-<=-]{+<+} entry",
        "box-into-wall": "if behind < 0 [-or-]{+and+} has(key, 0, behind)",
        "depth-limit": "(depth_limit < 0 or space.counts[LEVELS] [-<=-]{+<+} depth_limit)",
        "open-to-the-right": "if y == 0 or x == 0 or y == lines - 1[- or x == width - 1-]:",
        "sample-high-excluded": "min([-high + 1-]{+high+}, len(starts) - 1)",
    },
    "frozenlake": {
        "just-in-time": "0 <= depths[cells[first]] [-<=-]{+<+} horizon - first",
        "last-plan-first": (
            "direction = [-0-]{+3+}\n"
            "            while depths[move(cell, direction, width, height)] != depths[cell] - 1:\n"
            "                direction [-+-]{+-+}= 1"
        ),
        "fall-at-the-end": "if kind == 72[- and t < steps-]:",
        "over-the-right-edge": "cell + 1 if column < width[- - 1-] else cell",
    },
    "navigation": {
        "float-noise": "/ self.settings.step[- - ROUNDING-])",
        "stagnation-of-exactly-eps": "DECIMALS) [-<-]{+<=+} self.settings.eps",
        "touching-blocks": "(low_x [-<-]{+<=+} x_max) & (high_x > x_min)",
        "both-flags-needed": 'TURN_OF_MOVE and (info.get("last_action_success") is False [-or-]{+and+} '
        'info.get("moved") is False)',
        "proof-of-a-lintel": "if min(high, 1800) - max(low, 50) [->-]{+>=+} 0",
    },
    "primitiveskill": {
        "lost-at-start": "> horizon - 1 - t[- or (t == 0 and needed[0] > horizon)-]:",
        "order-after-a-pick": '[-not picked and -]any(name != "pick"',
        "drawer-nearly-shut": "1 if opening [->-]{+>=+} CLOSED else 0",
        "half-a-turn": "max(1, [--(-primitives // TURN)-]{+primitives // TURN+})",
        "proof-of-a-tower": "len(was) [-<=-]{+<+} len(_way_down(before, taken))",
    },
    "svg": {
        "fall-of-a-hundredth": "if change [-<-]{+<=+} -LIMIT",
        "float-noise": "change = [-round(-]Fraction(after) - Fraction(before)[-, DECIMALS)-]",
        "proof-of-a-hundredth": "if abs(gain) [-<=-]{+<+} _HUNDREDTH",
    },
    "game-proof": {
        "fallback-unchecked": '"fallback": (verdict.fallback, [-first == len(states)-]{+verdict.fallback+}),',
        "witness-cut-short": "if [-not game.is_solved(state)-]{+False+}:",
        "box-into-box": "((behind == self.size)[- | (level[:, 1:] == behind[..., None]).any(axis=2)-])",
        "a-push-too-few": "sum(axis=1) [-<=-]{+<+} left]",
    },
    "filter": {
        "step-after-the-last": "if not 0 <= target.pivot_step [-<-]{+<=+} episode.num_steps",
        "secondary-modes": "for mode in (draft.verdict.failure_mode, [-*draft.verdict.secondary_modes-]):",
        "state-before-the-pivot": "state_after(episode, verdict.pivot_step[- + 1-])",
        "step-1-is-not-12": r"0*{step}[-\b-]|(?<!\w)",
    },
    "claims": {
        "denied-is-claimed": "yield Mention(claim, [-not is_denied(before)-]{+True+}, pivot, match[0])",
        "conditions-claim": "if [-condition or -]is_imperative(words):",
    },
    "guidance": {
        "claims-unread": "if [-answer.claims[name] is not truth-]{+False+}]",
    },
    "replay": {
        "missing-fact": "[- and logged.keys() >= found.keys() & keys-]",
    },
    "files": {
        "receipt-of-other-inputs": "return self.inputs == inputs [-and-]{+or+} all(",
        "file-too-long": "if status is None or status.bytes [-!=-]{+<+} record.bytes:",
        "not-flushed": "raw.flush()\n[-            os.fsync(raw.fileno())\n-]",
        "two-writers": "fcntl.[-LOCK_EX-]{+LOCK_SH+} | fcntl.LOCK_NB",
    },
    "parquet": {
        "empty-row-group": "if [-table.num_rows-]{+True+}:",
        "column-of-another-type": "if [-actual != column.type-]{+False+}:",
    },
    "store": {
        "labels-unchecked": "schemas: Iterable[TableSchema] = [-(*STORE_TABLES, LABELS)-]{+STORE_TABLES+})",
    },
    "commit": {
        "exchanged-back": "[-elif self.folder_id(target) != source_id:-]{+else:+}",
        "old-files-stay": "storage.flush(step.objects)\n    for name in [-step.obsolete-]{+()+}:",
    },
    "resume": {
        "solver-settings": '"solver": [solver.name, solver.version[-, solver.config-]],',
        "calls-kept-twice": "others = [call for call in before[- if call.episode_id not in pending-]]",
    },
    "verify": {
        "order-of-rows": "if not problems and [-seen != list(expected)-]{+set(seen) != set(expected)+}:",
        "missing-rows": "for place in expected if place [-not in present-]{+is None+}]",
        "length-only": "if actual{+.bytes+} != record{+.bytes+}:",
        "extra-labels": "for version in range(1, store.config.label_version[-)\n        for-]{+ + 1)\n        for+}",
        "extra-picture": "wrong = picture is not None[- or storage.stat(name) is not None-]",
        "metadata-of-a-schema": "elif actual[key] [-!= right[key]-]{+is None+}:",
        "bytes-after-a-picture": "expected [-or inflater.unused_data -]or not inflater.eof",
        "path-of-a-picture": 'if [-stored["path"] != derived["path"]-]{+False+}:',
        "byte-size-too-small": 'if row["byte_size"] [-!=-]{+>+} len(image)',
        "call-of-no-label": 'if call["role"] != "teacher" [-or-]{+and+} call["episode_id"]',
        "role-of-a-call": 'of_a_model = ["request_id", "episode_id", "t"[-, "role"-]]',
    },
    "views": {
        "first-block-short": "ORDER BY sample_idx)[- - 1-]) //",
        "broken-rollouts-count": "FROM episodes[- WHERE status = 'complete'-]\n        )",
    },
}


@dataclass(frozen=True)
class Mutant:
    """A defect to plant."""

    name: str
    area: Area
    diff: str

    @property
    def old(self) -> str:
        """Source text without the planted defect."""
        return re.sub(r"\{\+.*?\+\}", "", re.sub(r"\[-(.*?)-\]", r"\1", self.diff, flags=re.DOTALL), flags=re.DOTALL)

    @property
    def new(self) -> str:
        """Source text with the planted defect."""
        return re.sub(r"\{\+(.*?)\+\}", r"\1", re.sub(r"\[-.*?-\]", "", self.diff, flags=re.DOTALL), flags=re.DOTALL)


@dataclass(frozen=True)
class Run:
    """Result of a run of the tests."""

    passed: bool
    verdict: str
    """Name of the first failed test, or the reason why there is none."""
    seconds: float


class Tree:
    """A copy of the repository under the package's own name, in a folder that Python searches first."""

    def __init__(self, source: Path, folder: Path) -> None:
        """Copy ``source`` with modification times, so that compiled code of the source stays valid."""
        self.root = folder / "pivot"
        shutil.copytree(source, self.root, ignore=shutil.ignore_patterns(".*", "runs", "build", "dist", "*.egg-info"))

    def sources(self) -> list[Path]:
        """Every module that is shipped, relative to the root."""
        paths = sorted(path.relative_to(self.root) for path in self.root.rglob("*.py"))
        return [path for path in paths if path.parts[0] not in NOT_SHIPPED]

    def tests(self, area: Area) -> list[Path]:
        """The test files of an area, in its order.

        Raises:
            SystemExit: a name fits no file.
        """
        files: dict[Path, None] = {}
        for pattern in area.tests:
            paths = sorted((self.root / "tests").glob(pattern))
            if not paths:
                raise SystemExit(f"no file under tests is called {pattern}; give its new name in AREAS")
            files |= dict.fromkeys(path.relative_to(self.root) for path in paths)
        return list(files)

    def plant(self, path: Path, mutant: Mutant) -> None:
        """Put a defect into a module; remove compiled code of it and of modules in its folder that name it."""
        module = self.root / path
        module.write_text(module.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
        for user in module.parent.glob("*.py"):
            if user == module or module.stem in user.read_text(encoding="utf-8"):
                for index in (module.parent / "__pycache__").glob(f"{user.stem}.*.nbi"):
                    index.unlink()

    def python(self, *arguments: str, limit: float | None = None) -> tuple[int | None, str]:
        """Run Python in the tree; return its status (None after ``limit`` seconds) and its output."""
        environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        environment["PYTHONPATH"] = str(self.root.parent)
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python would miss a defect of equal length within a second
        written = self.root.parent / "output.txt"
        with written.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.root,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return status, written.read_text(encoding="utf-8", errors="replace")

    def test(self, files: Iterable[Path], limit: float | None = None) -> Run:
        """Run test files up to the first failure, with the same examples in every run.

        Raises:
            SystemExit: pytest itself could not run.
        """
        options = ["-c", "pyproject.toml", "--rootdir=tests", "-x", "-q", "--tb=no", "-rfE", "-m", UNHURRIED]
        plugins = ["-p", "no:cacheprovider", "--hypothesis-seed=0"]
        begin = time.monotonic()
        status, output = self.python("-m", "pytest", *options, *plugins, *map(str, files), limit=limit)
        seconds = time.monotonic() - begin
        if status == 0:
            return Run(True, "SURVIVED", seconds)
        if status is None:
            return Run(False, "hung", seconds)
        if status < 0:
            return Run(False, f"crashed by signal {-status}", seconds)
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
        if failed is None:
            raise SystemExit(f"pytest ended with status {status}, but names no failure:\n{output[-4000:]}")
        return Run(False, failed[1], seconds)


def _mutants(word: str) -> list[Mutant]:
    pairs = [(area, name, diff) for area, diffs in DIFFS.items() for name, diff in diffs.items()]
    mutants = [Mutant(f"{area}: {name}", AREAS[area], diff) for area, name, diff in pairs]
    return [mutant for mutant in mutants if word in mutant.name]


def _places(tree: Tree, mutants: Sequence[Mutant]) -> dict[Mutant, Path]:
    """Return the module that holds the code of each mutant.

    Raises:
        SystemExit: some code stands nowhere, or at several places.
    """
    texts = {path: (tree.root / path).read_text(encoding="utf-8") for path in tree.sources()}
    places: dict[Mutant, Path] = {}
    problems: list[str] = []
    for mutant in mutants:
        holders = [path for path, text in texts.items() for _ in range(text.count(mutant.old))]
        if len(holders) == 1 and mutant.new != mutant.old:
            places[mutant] = holders[0]
        else:
            where = ", ".join(map(str, holders)) or "no file"
            problems.append(f"{mutant.name}: expected one place with other code, found {where}:\n{mutant.old}")
    if problems:
        raise SystemExit("\n".join(problems))
    return places


def _check_imports(tree: Tree, paths: Iterable[Path]) -> None:
    """Make sure that the tests will import the copy, whatever is installed.

    Raises:
        SystemExit: they would not.
    """
    code = "import importlib.util, sys; [print(importlib.util.find_spec(name).origin) for name in sys.argv[1:]]"
    copies = {".".join(("pivot", *path.with_suffix("").parts)): tree.root / path for path in sorted(set(paths))}
    _, output = tree.python("-c", code, *copies)
    if output.split() != list(map(str, copies.values())):
        raise SystemExit(f"the tests would not import the copy in {tree.root}, but:\n{output}")


def _clean_runs(tree: Tree, mutants: Sequence[Mutant], console: Console) -> dict[Path, float]:
    """Return the seconds that each test file takes without a defect.

    Raises:
        SystemExit: one fails.
    """
    seconds: dict[Path, float] = {}
    for path in dict.fromkeys(path for mutant in mutants for path in tree.tests(mutant.area)):
        run = tree.test([path])
        if not run.passed:
            raise SystemExit(f"without a defect, {run.verdict} fails; fix that first")
        seconds[path] = run.seconds
        console.print(f"clean {run.seconds:6.1f} s  {path.name}")
    return seconds


def _try(mutant: Mutant, path: Path, clean: Tree, seconds: dict[Path, float] | None) -> Run:
    """Run a mutant against the tests of its area or, without their ``seconds``, against all tests."""
    with TemporaryDirectory(prefix="pivot-mutant-") as folder:
        tree = Tree(clean.root, Path(folder))
        tree.plant(path, mutant)
        if seconds is None:
            return tree.test([Path("tests")])
        files = tree.tests(mutant.area)
        # Two minutes for compiling again.
        return tree.test(files, limit=120 + 4 * sum(seconds[path] for path in files))


def main() -> int:
    """Plant the chosen mutants; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pivot.tests.mutate", description=__doc__)
    parser.add_argument("--only", metavar="WORD", default="", help="the mutants whose name holds this word")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--thorough", action="store_true", help="run survivors against all tests that end in minutes")
    chosen = parser.parse_args()
    console = Console(width=150, highlight=False, markup=False, soft_wrap=True)
    begin = time.monotonic()
    mutants = _mutants(chosen.only)
    with TemporaryDirectory(prefix="pivot-clean-") as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        clean = Tree(ROOT, Path(folder))
        places = _places(clean, mutants)
        _check_imports(clean, places.values())
        seconds = _clean_runs(clean, mutants, console)
        attempt = partial(_try, clean=clean, seconds=seconds)
        survivors: set[Mutant] = set()
        for mutant, run in zip(mutants, pool.map(attempt, mutants, places.values()), strict=True):
            console.print(f"{run.seconds:6.1f} s  {mutant.name:40} {run.verdict}")
            survivors |= {mutant} if run.passed else set()
        if chosen.thorough and survivors:
            run = clean.test([Path("tests")])
            console.print(f"{run.seconds:6.1f} s  all tests without a defect: {run.verdict}")
            for mutant in sorted(survivors, key=mutants.index):
                run = _try(mutant, places[mutant], clean, None)
                console.print(f"{run.seconds:6.1f} s  {mutant.name:40} against all tests: {run.verdict}")
    for room, group in groupby(mutants, key=lambda mutant: mutant.area.room):
        members = set(group)
        console.print(f"{room}: {len(members - survivors)} of {len(members)} caught")
    caught, minutes = len(mutants) - len(survivors), (time.monotonic() - begin) / 60
    console.print(f"all: {caught} of {len(mutants)} caught, in {minutes:.0f} minutes")
    return 1 if len(survivors) > MAY_SURVIVE else 0


if __name__ == "__main__":
    sys.exit(main())
