"""Damaged stores: every reader gets one message that names the file or field and the fix."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pivot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.cli import app
from pivot.core.errors import ConfigError, ForbiddenError, PivotError, PluginError, StoreError
from pivot.core.storage import LocalStorage
from pivot.datasets.sql.views import query
from pivot.datasets.store.parquet import check_columns, read_table
from pivot.datasets.store.schema import LABELS
from pivot.datasets.store.store import MANIFEST, RUN, Store
from pivot.tests.dataset.plants import change_run
from pivot.tests.disks import obeyed_permissions
from pivot.tests.stores import Patient, build_tiny, problems, rewrite_manifest, schema_of
from typer.testing import CliRunner

TABLES = {name: f"{name}/sokoban/00001.parquet" for name in ("episodes", "steps", "frames", "prompts", "calls")}
TABLES |= {"label prompts": "prompts/sokoban/00001-labels-v1.parquet", "labels": "labels/v1/sokoban/00001.parquet"}
VIEW_OF = {name: name.removeprefix("label ") for name in TABLES if name not in ("frames", "calls")}


@pytest.fixture(scope="module")
def _copy(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Patient:
    return Patient(small_store, tmp_path_factory.mktemp("damaged") / "store")


@pytest.fixture
def damaged(_copy: Patient) -> Iterator[Path]:
    """A copy of the small store to damage; it is restored afterwards."""
    yield _copy.root
    _copy.heal()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: path.unlink(), "is missing"),
    "empty": (lambda path: path.write_bytes(b""), "torn or damaged"),
    "torn": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "torn or damaged"),
    "text": (lambda path: path.write_text("not a table"), "torn or damaged"),
    "no column": (lambda path: pq.write_table(pa.table({"a": [1]}), path), "lacks column"),
}


def _says(read: Callable[[], object], path: Path, what: str) -> None:
    with pytest.raises(StoreError) as raised:
        read()
    fix = "restore it from a copy" if "column" in what else "run the same build again"
    assert all(each in str(raised.value) for each in (str(path), what, fix)), raised.value
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_shard_is_named_by_every_reader(damaged: Path, table: str, damage: str) -> None:
    path, schema = damaged / TABLES[table], schema_of(TABLES[table])
    break_it, what = DAMAGES[damage]
    break_it(path)
    _says(lambda: pivot.load_store(damaged), path, what)
    _says(lambda: read_table(LocalStorage(damaged), TABLES[table], schema), path, what)
    if damage in ("missing", "empty"):
        with pytest.raises(StoreError, match=what):
            Store.open(damaged).lazy()
    if table in VIEW_OF:
        _says(lambda: query(damaged, f"SELECT max({schema.names[0]}) FROM {VIEW_OF[table]}"), path, what)
    if table in ("episodes", "labels"):
        _says(lambda: query(damaged, "FROM modes"), path, what)


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize(
    ("name", "column", "kind"),
    [("labels", "certificate", pa.string()), ("steps", "reward", pa.int64()), ("frames", "image", pa.string())],
)
def test_a_wrong_type_names_the_column(damaged: Path, name: str, column: str, kind: pa.DataType) -> None:
    path, what = damaged / TABLES[name], f"column {column} of table {name}"
    _with_cells(path, column, lambda cells: pa.nulls(len(cells), kind))
    _says(lambda: pivot.load_store(damaged), path, f"{what} has type {kind}, expected ")
    if name == "labels":
        _says(lambda: query(damaged, "FROM bound_quality"), path, f"{what} has type {kind}, expected ")
    rewrite_manifest(damaged)
    assert any(what in problem for problem in problems(damaged))


def test_more_columns_are_allowed_and_all_missing_ones_named() -> None:
    more = LABELS.arrow.append(pa.field("more", pa.int8()))
    check_columns("a.parquet", LABELS, more)
    with pytest.raises(StoreError, match="lacks columns pivot_step, witness of table labels"):
        less = [field for field in LABELS.arrow if field.name not in ("pivot_step", "witness")]
        check_columns("a.parquet", LABELS, pa.schema(less))


OPENERS: dict[str, Callable[[Path], object]] = {
    "load_store": pivot.load_store,
    "open": Store.open,
    "query": lambda root: query(root, "SELECT 1"),
    "verify": problems,
}


@pytest.mark.parametrize("opener", OPENERS)
def test_what_is_no_store_is_refused(opener: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing does not exist, so it is not a PIVOT store; make one with"):
        OPENERS[opener](tmp_path / "missing")
    (tmp_path / "notes.txt").write_text("not a store")
    with pytest.raises(StoreError, match=r"holds no run\.json, so it is not a PIVOT store; name the folder"):
        OPENERS[opener](tmp_path)
    with pytest.raises(StoreError, match=r"notes\.txt is a file; name a folder"):
        OPENERS[opener](tmp_path / "notes.txt")


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("name", ["", "run.json", "steps/sokoban", "steps/sokoban/00000.parquet", "pivot.duckdb"])
def test_what_may_not_be_read_is_named_once(opener: str, name: str, patients: dict[str, Patient]) -> None:
    """Files behind a missing permission are not called damaged, and no message advises to delete them."""
    if (opener in ("open", "query") and "steps" in name) or (opener != "verify" and name == "pivot.duckdb"):
        pytest.skip("it reads run.json alone")
    path = patients["sokoban"].root / name
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with obeyed_permissions(), pytest.raises(ForbiddenError) as raised:
            OPENERS[opener](patients["sokoban"].root)
    finally:
        path.chmod(mode)
    shown = rf"cannot (list|read) {path}(/\d+\.parquet)?: Permission denied; change its permissions so that [^;]*"
    assert re.fullmatch(shown, str(raised.value))


@pytest.mark.parametrize("opener", OPENERS)
def test_an_unfinished_store_is_refused(opener: str, tiny_store: Path, tmp_path: Path) -> None:
    (tmp_path / RUN).write_bytes((tiny_store / RUN).read_bytes())
    with pytest.raises(StoreError, match=r"holds no manifest\.json: its build did not finish; finish it with: pivot"):
        OPENERS[opener](tmp_path)
    assert Store.open(tmp_path, complete=False).config.rollouts == 2


CHESS = {"chess": {"tasks": 1, "settings": {}}}


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda raw: [raw], StoreError, "has no field 'config'"),
        (lambda raw: {"config": 5, "format": 1}, ConfigError, "expected an object"),
        (lambda raw: raw | {"format": 2}, StoreError, "found format 2, expected 1"),
        (lambda raw: raw | {"config": raw["config"] | {"environments": CHESS}}, PluginError, "environment 'chess'"),
    ],
)
def test_a_damaged_run_json_is_named_with_its_field(
    change: Callable[[dict[str, Any]], Any], kind: type[PivotError], message: str, tiny_store: Path, tmp_path: Path
) -> None:
    storage = LocalStorage(tmp_path)
    storage.write_json(RUN, change(json.loads((tiny_store / RUN).read_text())))
    storage.write_json(MANIFEST, {"files": {}})
    for opener in OPENERS.values():
        with pytest.raises(kind) as raised:
            opener(tmp_path)
        assert str(tmp_path / RUN) in str(raised.value)
        assert message in str(raised.value)


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"files": []}', '{"files": {"a": 1}}', '{"files": {"a": {"sha256": "0"}}}', "5", '"files"']
)
def test_a_malformed_manifest_is_named(content: str, tiny_store: Path, tmp_path: Path) -> None:
    (tmp_path / RUN).write_bytes((tiny_store / RUN).read_bytes())
    (tmp_path / MANIFEST).write_text(content)
    for use in (lambda: Store.open(tmp_path).manifest(), lambda: problems(tmp_path)):
        with pytest.raises(StoreError, match=r"manifest\.json is not a manifest .*run the same build again"):
            use()


def test_no_command_runs_the_database_of_a_store(lake: Patient) -> None:
    """Queries make their views themselves: a damaged or forged pivot.duckdb changes nothing, `verify` names it."""
    root = lake.root
    expected = query(root, "SELECT * FROM group_rates")
    with duckdb.connect(str(root / "pivot.duckdb")) as connection:
        connection.execute("CREATE OR REPLACE VIEW group_rates AS SELECT content FROM read_text('/etc/hostname')")
    assert query(root, "SELECT * FROM group_rates") == expected
    assert any("pivot.duckdb: the view main.group_rates is not the one" in problem for problem in problems(root))
    (root / "pivot.duckdb").write_bytes(b"not a database" * 100)
    assert query(root, "SELECT * FROM group_rates") == expected
    assert any("pivot.duckdb: its views cannot be compared" in problem for problem in problems(root))


ESCAPES = {
    "reads a file": "SELECT * FROM read_text('{outside}/secret.txt')",
    "reads a table": "SELECT * FROM '{outside}/secret.parquet'",
    "lists files": "SELECT * FROM glob('{outside}/*')",
    "writes a file": "COPY (SELECT 1) TO '{outside}/made.csv'",
    "writes into the store": "COPY (SELECT 1) TO '{root}/made.csv'",
    "explains it away": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{outside}/made.csv'",
    "attaches a database": "ATTACH '{outside}/made.duckdb'",
    "exports": "EXPORT DATABASE '{outside}/made'",
    "installs": "INSTALL httpfs",
    "connects": "SELECT * FROM read_csv('http://127.0.0.1:9/made.csv')",
    "reads a variable": "SELECT * FROM secret",
    "opens the door": "SET enable_external_access = true",
    "unlocks": "SET lock_configuration = false",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_query_sees_the_store_alone(escape: str, tiny_store: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    pq.write_table(pa.table({"word": ["secret"]}), tmp_path / "secret.parquet")
    sql = ESCAPES[escape].format(outside=tmp_path, root=tiny_store)
    with pytest.raises(ConfigError, match=r"the query failed|the query may see the store alone"):
        query(tiny_store, sql)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.parquet", "secret.txt"]
    assert not (tiny_store / "made.csv").exists()


def test_a_flag_lets_a_query_see_more(tiny_store: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"env": ["sokoban"], "score": [1.5]}), tmp_path / "scores.parquet")
    sql = f"SELECT DISTINCT score FROM episodes JOIN '{tmp_path}/scores.parquet' USING (env)"
    assert query(tiny_store, sql, external=True) == (["score"], [(1.5,)])
    assert query(tiny_store, "SELECT count(*) FROM 'frames/*/*.parquet'", external=True)[1][0][0] > 0


def test_a_wrong_query_is_the_users_matter(tiny_store: Path) -> None:
    with pytest.raises(ConfigError, match=r'the query failed: .*! Did you mean "episodes".*; views: episodes'):
        query(tiny_store, "SELECT * FROM episode")
    assert query(tiny_store, "SELECT count(*) AS n FROM episodes") == (["n"], [(8,)])


@pytest.mark.parametrize("name", ["it's, with space", "a[1]b", "a*b", 'what? ä "quote" %20 {}'])
def test_a_store_may_have_any_name(name: str, tmp_path: Path) -> None:
    # A neighbour that a careless pattern would also match.
    for other in ("a1b", "axxb"):
        (tmp_path / other / "episodes/frozenlake").mkdir(parents=True)
        (tmp_path / other / "episodes/frozenlake/00000.parquet").write_bytes(b"")
    root = build_tiny(tmp_path / name, environments={"frozenlake": {"tasks": 1, "settings": {}}})
    assert query(root, "SELECT count(*) FROM episodes")[1] == [(2,)]
    assert query(root, "SELECT sum(num_steps) FROM episodes")[1] == query(root, "SELECT count(*) FROM steps")[1]
    assert pivot.load_store(root).episodes.collect().height == 2
    assert problems(root) == []


def test_flipped_bits_never_surprise(tiny_store: Path, tmp_path: Path) -> None:
    """A flipped bit is a StoreError, or a difference that `verify` sees; never another exception."""
    rng = random.Random(0)
    names = sorted(path.relative_to(tiny_store).as_posix() for path in tiny_store.rglob("*.parquet"))
    for _ in range(400):
        name = rng.choice(names)
        data = bytearray((tiny_store / name).read_bytes())
        # Half of the flips are in the footer, where they do most.
        reach = len(data) if rng.random() < 0.5 else min(len(data), 3000)
        data[len(data) - 1 - rng.randrange(reach)] ^= 1 << rng.randrange(8)
        (tmp_path / "flipped.parquet").write_bytes(data)
        try:
            read_table(LocalStorage(tmp_path), "flipped.parquet", schema_of(name))
        except StoreError as error:
            assert "flipped.parquet" in str(error)


def _with_cells(path: Path, column: str, cells: Callable[[pa.ChunkedArray], pa.Array]) -> None:
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(column), column, cells(table[column])), path)


def _all(value: Any) -> Callable[[pa.ChunkedArray], pa.Array]:
    return lambda cells: pa.array([value] * len(cells), cells.type)


def _no_text(cells: pa.ChunkedArray) -> pa.Array:
    broken = pa.array([b"\xff\xfe"] * len(cells), pa.binary())
    return pa.StringArray.from_buffers(len(cells), *broken.buffers()[1:])


EXPORTS = ("pairs", "privileged", "credit")
WRONG_CELLS: dict[str, tuple[str, str, Callable[[pa.ChunkedArray], pa.Array], str]] = {
    "no UTF-8": ("steps", "response", _no_text, "steps/sokoban/00000.parquet: a cell cannot be read"),
    "no pivot": ("labels", "pivot_step", _all(None), "column pivot_step of an accepted label is null"),
    "no mode": ("labels", "failure_mode", _all(None), "column failure_mode of an accepted label is null"),
    "pivot below 0": ("labels", "pivot_step", _all(-2), "a label has the pivot step -2, expected none below 0"),
    "pivot beyond": ("labels", "pivot_step", _all(99), "names step 99, expected one of its"),
    "no actions": ("episodes", "actions", _all(None), "column actions holds nulls, expected a value in every row"),
    "steps of nobody": ("steps", "episode_id", _all("x"), r"has \d+ actions and 0 steps"),
    "foreign environment": ("episodes", "env", _all("x"), "an episode has the environment 'x', expected 'sokoban'"),
}


@pytest.mark.parametrize("case", WRONG_CELLS)
def test_wrong_cells_are_one_line_and_not_a_traceback(damaged: Path, tmp_path: Path, case: str) -> None:
    table, column, cells, message = WRONG_CELLS[case]
    exports = [["export", kind, str(damaged), "--out", str(tmp_path / kind), "--workers", "1"] for kind in EXPORTS]
    _with_cells(damaged / TABLES[table].replace("00001", "00000"), column, cells)
    for command in (["peek", str(damaged)], *exports):
        error = CliRunner().invoke(app, command).exception
        assert isinstance(error, StoreError), (command, error)
        assert re.search(message, str(error)), (command, error)
        assert "pivot verify" in str(error)
        assert "\n" not in str(error)


def test_a_column_that_is_there_twice_is_refused(damaged: Path) -> None:
    path = damaged / TABLES["episodes"]
    table = pq.read_table(path)
    pq.write_table(table.append_column(table.column_names[0], table[0]), path)
    for read in (pivot.load_store, lambda root: query(root, "FROM group_rates")):
        with pytest.raises(StoreError, match=r"00001\.parquet has two columns episode_id, expected one"):
            read(damaged)


@pytest.mark.parametrize("version", [2, 999_999])
def test_a_label_version_without_labels_is_refused(damaged: Path, version: int) -> None:
    change_run(damaged, lambda run: run["config"].update(label_version=version))
    message = rf"run\.json: the label version is {version}, but the labels in .* are of version 1; restore run.json"
    for read in (pivot.load_store, lambda root: query(root, "FROM modes"), problems):
        with pytest.raises(StoreError, match=message):
            read(damaged)


def test_a_label_version_beyond_any_is_refused(damaged: Path) -> None:
    change_run(damaged, lambda run: run["config"].update(label_version=10**30))
    with pytest.raises(ConfigError, match="label_version"):
        Store.open(damaged)
