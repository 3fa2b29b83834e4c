"""Publishing on a hub: one commit per version, despite kills; only whole stores; no secret is shown."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pivot
import pytest
from huggingface_hub import constants
from pivot.core.errors import ConfigError, HubError, StoreError
from pivot.core.progress import Reporter
from pivot.core.storage import LocalStorage
from pivot.datasets.export.publish import parse_target, publish
from pivot.flows.engines.local import InProcess
from pivot.flows.relabel import relabel_store
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.core.object_server import ObjectServer
from pivot.tests.dataset.push_hub import TOKEN, Hub, push_hub
from pivot.tests.flow_runs import PATIENCE, clean_environment, config_of
from pivot.tests.stores import contents_of, copy_store

REPO = "me/first"
TARGET = f"hub:{REPO}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that this process pushes to."""
    with push_hub() as made:
        for name, value in {"ENDPOINT": made.url, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield made


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """Variables for a separate process."""
    variables = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(home)}
    return clean_environment() | variables | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}


@pytest.fixture
def store(tiny_store: Path, tmp_path: Path) -> Path:
    """A finished store to push and to damage."""
    return copy_store(tiny_store, tmp_path / "store")


def version(root: Path) -> dict[str, bytes]:
    """Return the contents of a store's dataset by file name."""
    return contents_of(root / "dataset")


def shown(hub: Hub, branch: str = "main") -> dict[str, bytes]:
    """Return the files that a reader of the hub sees."""
    repository = hub.repositories.get(REPO)
    commit = repository.at(branch) if repository else None
    return {} if commit is None else {name: file[1] for name, file in commit[1].items() if name != ".gitattributes"}


def test_a_version_is_published_once(hub: Hub, store: Path) -> None:
    requests: list[tuple[str, str]] = []
    hub.before = lambda method, path: requests.append((method, path))
    text = run("push", store, TARGET, "--dry-run")
    assert f"to {TARGET} (a new dataset); nothing was sent" in text
    assert not hub.repositories and {method for method, _ in requests} == {"GET"}

    text = run("push", store, TARGET, "--private")
    count = len(version(store))
    assert f"published {TARGET}: {count} of {count} files" in text
    assert f'load_dataset("{REPO}", "frozenlake")' in text
    assert shown(hub) == version(store)
    assert hub.repositories[REPO].private
    assert len(hub.repositories[REPO].branches["main"]) == 2

    requests.clear()
    text = run("push", store, TARGET, "--private")
    assert f"{TARGET} holds this version already: {count} files, commit {hub.repositories[REPO].at('main')[0]}" in text  # pyright: ignore[reportOptionalSubscript]
    assert {method for method, _ in requests} == {"GET"}
    assert TOKEN not in text


def test_nobody_ever_sees_half_of_a_version(hub: Hub, store: Path, tmp_path: Path) -> None:
    old = version(store)
    publish(store, REPO)
    changed = tmp_path / "changed"
    pivot.build(config_of(1), changed)
    new = version(changed)
    assert new.keys() != old.keys()
    seen: list[dict[str, bytes]] = []
    hub.before = lambda *_: seen.append(shown(hub))
    result = publish(changed, REPO)
    assert result.removed == len(old.keys() - new.keys())
    assert result.sent == sum(old.get(name) != new[name] for name in new)
    assert all(each == old for each in seen)
    assert shown(hub) == new
    publish(store, REPO)  # and back; the hub still has its content
    assert shown(hub) == old
    assert len(hub.sent) == len(set(hub.sent))


PUSH = f"""
import sys
from pathlib import Path
from pivot.datasets.export.publish import publish
publish(Path(sys.argv[1]), "{REPO}")
"""


@pytest.mark.parametrize("moment", ["third", "commit"])
def test_killed_in_the_middle_and_repeated(hub: Hub, store: Path, tmp_path: Path, moment: str) -> None:
    env = environment(hub, tmp_path / "home")
    puts: list[str] = []
    process: list[subprocess.Popen[bytes]] = []

    def strike(method: str, path: str) -> None:
        puts.extend([path] if method == "PUT" else [])
        if "/commit/" in path if moment == "commit" else len(puts) >= 3:
            process[0].send_signal(signal.SIGKILL)
            process[0].wait()

    hub.before = strike
    with subprocess.Popen([sys.executable, "-c", PUSH, str(store)], env=env, stderr=subprocess.DEVNULL) as pushing:
        process.append(pushing)
        assert pushing.wait(PATIENCE) == -signal.SIGKILL
    hub.before = lambda *_: None
    assert shown(hub) in ({}, version(store))  # the request that was on its way when it died counts
    text = run("push", store, TARGET)
    assert shown(hub) == version(store)
    assert len(hub.sent) == len(set(hub.sent)), "content that was there is not sent again"
    assert len(hub.repositories[REPO].branches["main"]) == 2
    assert TOKEN not in text


def test_a_store_elsewhere_is_published_too(hub: Hub, s3: ObjectServer, tmp_path: Path) -> None:
    there, here = s3.store(), tmp_path / "here"
    for root in (there, here):
        pivot.build(config_of(1), root)
    publish(there, REPO)
    assert shown(hub) == version(here)
    assert publish(here, REPO).already_there


# Refused pushes

TRAIN, STRAY = (f"dataset/sokoban/train-000{number}.parquet" for number in ("00", "99"))


def _changed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("manifest.json", Path.unlink, "its build did not finish"),
        (TRAIN, _changed, "was changed; nothing was published; see all of it with: pivot verify"),
        (TRAIN, Path.unlink, "is missing; nothing was published"),
        (STRAY, Path.touch, "dataset/sokoban/train-00099.parquet is not in the manifest; nothing was published"),
    ],
)
def test_what_is_no_whole_store_is_refused(
    hub: Hub, store: Path, name: str, damage: Callable[[Path], None], message: str
) -> None:
    damage(store / name)
    paths: list[str] = []
    hub.before = lambda _, path: paths.append(path)
    with pytest.raises(StoreError, match=message):
        publish(store, REPO)
    assert paths == []


def test_a_store_that_is_being_written_is_refused(hub: Hub, store: Path) -> None:
    with LocalStorage(store).lock(), pytest.raises(StoreError, match="is being written by another run"):
        publish(store, REPO)


def test_a_public_repository_is_not_taken_for_a_private_one(hub: Hub, store: Path) -> None:
    publish(store, REPO)
    assert f"{TARGET} is public, and --private makes new" in str(error_of("push", store, TARGET, "--private"))


def test_a_repository_with_something_else_stays_as_it_is(hub: Hub, store: Path) -> None:
    hub._create({"name": "first"})
    hub.repositories[REPO].commit("main", {"data/photos.zip": ("regular", b"mine")})
    with pytest.raises(ConfigError, match=r"hub:me/first holds 'data/photos\.zip', which no push left there; choose"):
        publish(store, REPO)
    assert shown(hub) == {"data/photos.zip": b"mine"}


def test_somebody_else_came_in_between(hub: Hub, store: Path) -> None:
    publish(store, REPO)
    relabel_store(store, {"split": "episode"}, InProcess(), Reporter())

    def come(_: str, path: str) -> None:
        if "/preupload/" in path:
            hub.repositories[REPO].commit("main", {"LICENSE": ("regular", b"theirs")})

    hub.before = come
    with pytest.raises(HubError, match=r"answered 412 .*somebody else changed the repository meanwhile"):
        publish(store, REPO)
    assert shown(hub) == {"LICENSE": b"theirs"}


@pytest.mark.parametrize(
    ("part", "status", "message"),
    [
        ("/api/datasets/", 401, "log in with a token that may write there"),
        ("/create", 403, "answered 403 (No.) for hub:me/first; log in with a token"),
        ("/preupload/", 500, "wait a little, then run the same command again"),
        ("/commit/", 400, "answered 400"),
    ],
)
def test_what_the_hub_refuses_is_shown(
    hub: Hub, store: Path, monkeypatch: pytest.MonkeyPatch, part: str, status: int, message: str
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.refuse[part] = (status, "No.")
    error = str(error_of("push", store, TARGET))
    assert message in error
    assert TOKEN not in error


def test_a_hub_that_is_not_there(hub: Hub, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(HubError, match=r"hub:me/first cannot be written \(.*check the network"):
            publish(store, REPO)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="not to be reached, as HF_HUB_OFFLINE says"):
        publish(store, REPO)


@pytest.mark.parametrize("text", ["me/first", "hub:first", "hub:me/first/x", "hub:", "hub:/x", "https://hub/me/x"])
def test_a_target_is_a_dataset_of_the_hub(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected hub:OWNER/NAME, such as hub:me/first"):
        parse_target(text)
    assert parse_target("hub:My-org/a.b_c") == "My-org/a.b_c"
    assert os.environ.get("HF_TOKEN") != TOKEN
