"""An object store as storage, on an S3-compatible server: addresses, whole objects, parts of them, listings, errors."""

import io
import itertools
import pickle
import random
import socket
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pivot.core.errors import ConfigError, ReadOnlyError, StoreError, masked, printable
from pivot.core.storage import TEMPORARY, FileRecord, Stat, Storage, Url, objects, open_storage, parse_address
from pivot.core.storage.base import Receipt, is_intact
from pivot.core.storage.commit import COMMIT, JOURNAL, bind, roll_forward
from pivot.core.storage.files import StorageFiles
from pivot.models.service import Service
from pivot.tests.core.faults import Fate, Killed
from pivot.tests.core.object_server import BUCKET, ObjectServer, environment
from pivot.tests.flow_runs import Handler, listening

NAMES = ["a", "a/b", "a/b.c", "deep/er/00000.parquet", "ü and space, (x)", "per%20cent", "plus+and&"]


@pytest.fixture
def storage(s3: ObjectServer) -> Storage:
    """An empty storage."""
    return open_storage(s3.store())


@pytest.mark.parametrize("name", NAMES)
def test_objects_are_whole_and_distinct(storage: Storage, name: str) -> None:
    assert storage.stat(name) is None and not storage.exists() and storage.entries() == []
    with pytest.raises(StoreError, match=r"cannot read .*the object does not exist"):
        storage.read_bytes(name)
    with pytest.raises(FileNotFoundError):
        storage.open(name)
    first = storage.write_bytes(name, b"one")
    before = storage.stat(name)
    assert storage.write(name, lambda sink: [sink.write(b"t"), sink.write(memoryview(b"wo"))]) != first
    assert storage.read_bytes(name) == b"two" and storage.record(name) == storage.write_bytes(name, b"two")
    after = storage.stat(name)
    assert before is not None and after is not None and before.changed != after.changed and before.bytes == 3
    assert storage.listing() == {name: after} and storage.entries() == [name.split("/", maxsplit=1)[0]]
    assert storage.exists()
    storage.delete(name)
    storage.delete(name)
    assert not storage.exists()


def test_a_folder_is_what_lies_below_it_and_no_other_beginning(storage: Storage) -> None:
    for name in ("a/1", "a/b/2", "ab/3", "a.x"):
        storage.write_bytes(name, name.encode())
    assert list(storage.listing("a")) == ["a/1", "a/b/2"] and storage.entries() == ["a", "a.x", "ab"]
    storage.delete("a")
    assert list(storage.listing()) == ["a.x", "ab/3"]
    storage.delete("")
    assert not storage.exists()


def test_the_lock_removes_what_a_killed_run_left(storage: Storage) -> None:
    for name in (f"{TEMPORARY}/nodes/driver", f"{TEMPORARY}s"):
        storage.write_bytes(name, b"x")
    with storage.lock():
        assert list(storage.listing()) == [f"{TEMPORARY}s"]


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../../up"])
def test_names_lead_nowhere_else(storage: Storage, name: str) -> None:
    assert storage.stat(name) is None
    with pytest.raises(StoreError, match="is outside of"):
        storage.read_bytes(name)
    with pytest.raises(StoreError, match="is outside of"):
        storage.write_bytes(name, b"x")
    with pytest.raises(FileNotFoundError):
        storage.open(name)
    with pytest.raises(StoreError, match="is not a file of this machine; copy the store to a local folder"):
        storage.local_path("a")


@pytest.mark.parametrize("size", [0, 1, *(objects._FIRST_READ + more for more in (-1, 0, 1)), 3_500_000])
def test_any_part_of_an_object_can_be_read(storage: Storage, size: int) -> None:
    content = random.Random(size).randbytes(size)
    assert storage.write_bytes("x", content) == storage.record("x")
    chance = random.Random(1)
    with storage.open("x") as stream, io.BytesIO(content) as other:
        assert stream.seekable()
        for _ in range(15):
            place, count = chance.randrange(size + 10), chance.choice([0, 1, 7, 4096, 1 << 20, -1])
            whence = chance.choice([0, 1, 2])
            offset = -min(place, size) if whence == 2 else place
            if whence == 1 and other.tell() > size:
                continue
            assert stream.seek(offset, whence) == other.seek(offset, whence)
            assert stream.read(count) == other.read(count)


def test_a_glance_asks_once_for_a_folder_and_knows_our_own_writes(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"steps/env/{number:05d}" for number in range(5)]
    records = {name: storage.write_bytes(name, name.encode()) for name in names}
    changed = {name: stat.changed for name, stat in storage.listing().items()}
    requests: list[str] = []
    library = objects._library()
    for function in ("head", "list", "get"):
        real = getattr(library, function)
        monkeypatch.setattr(
            library, function, lambda *a, real=real, function=function, **k: requests.append(function) or real(*a, **k)
        )
    with storage.lock() as address:
        worker = open_storage(address)
        requests.clear()
        assert all(is_intact(worker, name, records[name], changed[name]) for name in names)
        assert requests == ["list"]
        # After a write by another process of the run, the earlier listing proves nothing.
        other = open_storage(address)
        other._listed = {}  # pyright: ignore[reportAttributeAccessIssue]
        records[names[0]] = other.write_bytes(names[0], b"new")
        fresh = other.stat(names[0])
        assert fresh is not None and is_intact(worker, names[0], records[names[0]], fresh.changed)
        requests.clear()
        records[names[1]] = worker.write_bytes(names[1], b"newer")
        Receipt("inputs", {names[1]: records[names[1]]}, {}).write(worker, ".receipts/x")
        receipt = Receipt.read(worker, ".receipts/x")
        assert receipt is not None and receipt.holds(worker, "inputs")
        assert [each for each in requests if each != "get"] == []
        with worker.prefetch(".receipts"):
            requests.clear()
            assert Receipt.read(worker, ".receipts/x") == receipt
            assert requests == []
    assert not is_intact(storage, names[2], FileRecord("0", 3), changed[names[2]])


# Replacing


class MortalObjects(objects.ObjectStorage):
    """An object storage whose changing requests can be made to fail."""

    def __init__(self, root: Url, fate: Fate, patch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        library = objects._library()
        for name in ("put", "copy"):
            real = getattr(library, name)
            patch.setattr(
                library, name, lambda *a, real=real, name=name, **k: (fate.decide(f"{name} {a[1]}"), real(*a, **k))[1]
            )


def _step(storage: Storage) -> None:
    storage.delete(COMMIT)
    storage.write_bytes("staged/a/0", b"new")
    storage.write_bytes("staged/c", b"new")
    for name in ("run", "manifest"):
        storage.write_bytes(f"{COMMIT}/{name}", b"new")
    bind(storage, ("staged", "dataset"), ("run", "manifest"), ["labels"])
    roll_forward(storage, lambda _: None)


def test_killed_before_any_request_a_step_is_all_old_or_becomes_all_new(s3: ObjectServer) -> None:
    outcomes: set[bool] = set()
    for moment in itertools.count(1):
        with pytest.MonkeyPatch.context() as patch:
            fate = Fate()
            storage = MortalObjects(s3.store(), fate, patch)
            for name in ("dataset/a/0", "dataset/b", "labels/0", "run", "manifest"):
                storage.write_bytes(name, b"old")
            fate.changes.clear()
            fate.at = moment
            try:
                _step(storage)
                break
            except Killed:
                bound = storage.stat(JOURNAL) is not None
        with storage.lock():
            roll_forward(storage, lambda _: None)
        content = {name: storage.read_bytes(name) for name in storage.listing() if not name.startswith((".", "staged"))}
        new = content.keys() == {"dataset/a/0", "dataset/c", "run", "manifest"} and set(content.values()) == {b"new"}
        old = len(content) == 5 and set(content.values()) == {b"old"}
        assert new or (old and not bound), (moment, content)
        outcomes.add(new)
    assert outcomes == {False, True}


# Faults


def test_a_missing_bucket_is_named_within_seconds(s3: ObjectServer) -> None:
    began = time.monotonic()
    storage = open_storage(Url("s3://nowhere/x"))
    for use in (storage.entries, storage.listing, lambda: storage.stat("x"), lambda: storage.write_bytes("x", b"")):
        with pytest.raises(StoreError, match=rf"bucket s3://nowhere does not exist at {s3.url}; create it, or fix"):
            use()
    assert time.monotonic() - began < 30  # a request has 40 s


@pytest.mark.parametrize("listens", [False, True])
def test_a_server_that_does_not_answer_is_named_within_seconds(monkeypatch: pytest.MonkeyPatch, listens: bool) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(objects, "_CONTACT", ({"timeout": "300ms", "connect_timeout": "300ms"}, 1.0))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for name, value in environment(url).items():
            monkeypatch.setenv(name, value)
        began = time.monotonic()
        with pytest.raises(StoreError, match=rf"{url} cannot be reached .*check that it runs and that AWS_END"):
            open_storage(Url(f"s3://{BUCKET}/silent-{listens}")).entries()
        assert time.monotonic() - began < 30  # a request has 40 s


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, str]]]:
    """A server that gives the answers in a list that the test fills, and then repeats the last one."""
    pytest.importorskip("obstore")
    answers: list[tuple[int, str]] = []

    class Refusing(Handler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.reply(status, body.encode())

    with listening(Refusing) as url:
        for name, value in environment(url).items():
            monkeypatch.setenv(name, value)
        objects._client.cache_clear()
        yield answers
    objects._client.cache_clear()


def _error(code: str, more: str = "") -> str:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>No {code}.</Message>{more}</Error>"


EMPTY = "<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (403, _error("InvalidAccessKeyId"), "credentials (InvalidAccessKeyId: No InvalidAccessKeyId.); set AWS_"),
        (403, _error("SignatureDoesNotMatch"), "refused the credentials (SignatureDoesNotMatch"),
        (403, _error("AccessDenied"), "expected are rights to list, read and write objects of s3://bucket"),
        (301, _error("PermanentRedirect"), "is in another region; set AWS_REGION=to that of the bucket"),
        (
            400,
            _error("AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>"),
            "in region eu-west-3; set AWS_REGION=",
        ),
        (418, _error("Teapot"), "answered with status 418 (Teapot); run the same command again"),
    ],
)
def test_a_refusal_is_explained(refusing: list[tuple[int, str]], status: int, body: str, message: str) -> None:
    refusing.append((status, body))
    with pytest.raises(StoreError) as raised:
        open_storage(Url("s3://bucket/x")).entries()
    assert message in str(raised.value) and "testing" not in str(raised.value)


def test_a_busy_store_is_asked_again_for_as_long_as_the_settings_say(
    refusing: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses of the library are random: it used up ten retries within two seconds."""
    busy = (503, _error("SlowDown"))
    refusing += [(200, EMPTY), *[busy] * 11, (200, EMPTY)]
    assert open_storage(Url("s3://bucket/x")).entries() == []
    assert refusing == [(200, EMPTY)]
    monkeypatch.setenv("PIVOT_LEASE_SECONDS", "42")
    objects._client.cache_clear()
    refusing[:] = [(200, EMPTY), busy]
    began = time.monotonic()
    with pytest.raises(StoreError, match="SlowDown"):
        open_storage(Url("s3://bucket/x")).entries()
    assert 1.5 < time.monotonic() - began < 40
    refusing[:] = [(200, EMPTY)]
    monkeypatch.setenv("PIVOT_LEASE_SECONDS", "a minute")
    objects._client.cache_clear()
    with pytest.raises(ConfigError, match="PIVOT_LEASE_SECONDS: found 'a minute', expected a positive number"):
        open_storage(Url("s3://bucket/x")).entries()


def test_what_may_be_read_only_says_so(refusing: list[tuple[int, str]]) -> None:
    refusing += [(200, EMPTY), (404, ""), (403, _error("AccessDenied"))]
    with (
        pytest.raises(ReadOnlyError, match=r"cannot write s3://bucket/x/\.lock"),
        open_storage(Url("s3://bucket/x")).lock(),
    ):
        pass


# Seen as files


def test_objects_are_seen_as_files(storage: Storage) -> None:
    for name in ("a/x/0.parquet", "a/x/1.parquet", "a/y/0.parquet", "a/y/0-labels-v1.parquet", "run.json"):
        storage.write_bytes(name, name.encode())
    files, root = StorageFiles(storage), storage.address()

    def globbed(pattern: str) -> list[str]:
        return [each.removeprefix(f"{root}/") for each in files.glob(f"{root}/{pattern}")]

    assert globbed("a/*/?.parquet") == ["a/x/0.parquet", "a/x/1.parquet", "a/y/0.parquet"]
    assert globbed("a/*/?-labels-v1.parquet") == ["a/y/0-labels-v1.parquet"] and globbed("*") == ["run.json"]
    assert sorted(files.ls(f"{root}/a", detail=False)) == [f"{root}/a/x", f"{root}/a/y"]
    assert files.info(f"{root}/run.json") == {"name": f"{root}/run.json", "size": 8, "type": "file"}
    assert files.info(f"{root}/a")["type"] == "directory"
    assert files.open(f"{root}/run.json").read() == b"run.json"
    before = files.modified(f"{root}/run.json")
    storage.write_bytes("run.json", b"RUN.json")
    assert files.modified(f"{root}/run.json") != before
    for path in (f"{root}/none", f"s3://{BUCKET}/elsewhere"):
        with pytest.raises(FileNotFoundError):
            files.info(path)
    with pytest.raises(PermissionError):
        files.open(f"{root}/run.json", "wb")


def test_a_listing_of_thousands_is_whole(storage: Storage) -> None:
    names = [f"x/{number:05d}" for number in range(1_005)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(storage.write_bytes, names, [b"1"] * len(names)))
    assert list(storage.listing("x")) == names
    assert set(storage.listing().values()) == {Stat(1, '"c4ca4238a0b923820dcc509a6f75849b"')}
    storage.delete("x")
    assert not storage.exists()


@pytest.mark.parametrize("text", ["runs/first", "/abs/x", ".", "a:b", "odd:name/x", "s3", "s3/bucket"])
def test_what_is_no_address_is_a_path(text: str) -> None:
    assert parse_address(text) == Path(text)


@pytest.mark.parametrize("text", ["s3://bucket/a/b", "gs://bucket", "az://container/x y/ü,*"])
def test_an_address_keeps_its_text(text: str) -> None:
    address = parse_address(text)
    assert isinstance(address, Url) and str(address) == text
    assert parse_address(f"{text}/") == address == parse_address(address) == pickle.loads(pickle.dumps(address))
    assert str(address / "dataset") == f"{text}/dataset" and (address / "dataset").parent == address
    assert (address / "dataset").name == "dataset" and text.startswith(address.scheme)


@pytest.mark.parametrize(
    "text", ["s3:/bucket/x", "s3:bucket", "s3://", "s3:///x", "gs://b//x", "az://b/../x", "s3://b/x?y"]
)
def test_half_an_address_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is not an address of an object store; expected a folder, or .*s3://bucket/folder"
    ):
        parse_address(text)


@pytest.mark.parametrize("text", ["https://host/x", "hf://datasets/x", "file:///x", "S3://bucket/x"])
def test_an_address_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot hold a store \(unknown scheme"):
        parse_address(text)


SECRET = "Hush4Secret9Hush4Secret9"


@pytest.mark.parametrize(
    "text",
    [
        f"s3://AKIAID:{SECRET}@bucket/x",
        f"az://container/x?sv=1&sig={SECRET}",
        f"tcp://me:{SECRET}@scheduler:8786",
        f"https://{SECRET}@host/v1",
        f"https://host/v1?api-key={SECRET}",
        f"https://host/v1?a=1&access_token={SECRET}&b=2",
        f"https://host/v1?X-Amz-Signature={SECRET}",
        f"https://host/v1/sk-{SECRET}/chat",
        f"hf_{SECRET}",
        f"gsk_{SECRET}",
        f"ghp_{SECRET}",
        f"nvapi-{SECRET}",
        f"redis://:{SECRET}@cache:6379/0",
        f"one http://a:{SECRET}@x and another http://b:{SECRET}@y",
        f"https://host/x?password={SECRET}#part",
        f"s3://KEY:a/{SECRET}@bucket/x",
        f"s3://KEY:a@{SECRET}@bucket/x",
        f"https://host/x?X-Amz-Credential={SECRET}&auth={SECRET}",
        f"https://host/x;key={SECRET}",
        f"me:{SECRET}@scheduler:8786",
        f"Bearer {SECRET}",
    ],
)
def test_no_secret_of_an_address_is_in_a_message_or_on_a_terminal(text: str) -> None:
    error = ConfigError(f"found {text}, expected something else")
    assert SECRET not in str(error) + repr(error) + str(pickle.loads(pickle.dumps(error)))
    assert SECRET not in printable(f"reading {text} ...")
    with pytest.raises(ConfigError) as refused:
        parse_address(text if "://" in text else f"https://{text}")
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    with pytest.raises(ConfigError) as not_served:
        Service(base_url=f"{text}?key={SECRET}" if "://" in text else f"https://host/{text}")
    assert SECRET not in "".join(traceback.format_exception(not_served.value))


@pytest.mark.parametrize(
    "text",
    [
        "me@host",
        "s3://bucket/a@b",
        "http://host:80/a@b",
        "hf_datasets/first-rows-of-all",
        "hf-internal-testing/tiny-random",
        "?token_count=3",
        "task-1234567890123456789",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert masked(text) == text
