"""A hub on loopback to push to: repositories with branches and commits, LFS, and lists of files, by its HTTP API."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from pivot.tests.flow_runs import Handler, listening

TOKEN = "hf_the_secret_of_the_test"
File = tuple[str, bytes]
"""Storage kind of a file, ``lfs`` or ``regular``, and its content."""
Answer = tuple[int, Any, dict[str, str]]
"""Status, JSON, headers."""


@dataclass
class Repository:
    """One dataset."""

    private: bool
    branches: dict[str, list[tuple[str, dict[str, File]]]] = field(default_factory=dict)
    """Commits with all files, the newest last."""

    def commit(self, branch: str, files: dict[str, File]) -> str:
        """Add a commit."""
        commits = self.branches.setdefault(branch, [])
        number = hashlib.sha1(f"{branch} {len(commits)} {sorted(files)}".encode()).hexdigest()
        commits.append((number, files))
        return number

    def at(self, revision: str) -> tuple[str, dict[str, File]] | None:
        """Return a branch or commit."""
        if revision in self.branches:
            return self.branches[revision][-1]
        return next((each for commits in self.branches.values() for each in commits if each[0] == revision), None)


class Hub:
    """State of the hub's server, and the requests that it got."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.sent: list[str] = []
        """Digests in the order in which their content came."""
        self.before: Callable[[str, str], None] = lambda method, path: None
        """Called before every request is answered."""
        self.refuse: dict[str, tuple[int, str]] = {}
        """Status and message for paths that hold a text."""
        self.url = ""

    # Requests

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Answer a request."""
        self.before(method, path)
        for part, (status, message) in self.refuse.items():
            if part in path:
                return status, {"error": message}, {"X-Error-Message": message}
        request = json.loads(body) if body.startswith(b"{") and "/commit/" not in path else {}
        for pattern, answer in self._pages(request, body):
            if match := re.fullmatch(pattern, path):
                return answer(*map(unquote, match.groups()))
        return _missing("EntryNotFound", "no such page")

    def _pages(self, request: Any, body: bytes) -> list[tuple[str, Callable[..., Answer]]]:
        name, one = r"([^/]+/[^/]+)", r"([^/]+)"
        return [
            (r"/api/repos/create", lambda: self._create(request)),
            (r"/api/validate-yaml", lambda: (200, {"errors": [], "warnings": []}, {})),
            (r"/lfs/(\w+)", lambda digest: self._receive(digest, body)),
            (rf"/datasets/{name}\.git/info/lfs/objects/batch", lambda _: self._batch(request["objects"])),
            (rf"/api/datasets/{name}", lambda repo: self._info(repo, "main")),
            (rf"/api/datasets/{name}/revision/{one}", self._info),
            (rf"/api/datasets/{name}/preupload/{one}", lambda repo, at: self._modes(repo, at, request["files"])),
            (rf"/api/datasets/{name}/commit/{one}", lambda repo, at: self._committed(repo, at, body)),
            (rf"/api/datasets/{name}/tree/{one}", self._tree),
        ]

    def _create(self, request: Mapping[str, Any]) -> Answer:
        name = f"{request.get('organization') or 'me'}/{request['name']}"
        if name in self.repositories:
            return 409, {"error": "You already created this dataset repo", "url": f"{self.url}/datasets/{name}"}, {}
        private = request.get("private") is True or request.get("visibility") == "private"
        made = self.repositories[name] = Repository(private)
        made.commit("main", {".gitattributes": ("regular", b"*.parquet filter=lfs\n")})
        return 200, {"url": f"{self.url}/datasets/{name}"}, {}

    def _receive(self, digest: str, content: bytes) -> Answer:
        assert hashlib.sha256(content).hexdigest() == digest
        self.objects[digest] = content
        self.sent.append(digest)
        return 200, {}, {}

    def _batch(self, objects: list[dict[str, Any]]) -> Answer:
        def described(each: Mapping[str, Any]) -> dict[str, Any]:
            kept = {"oid": each["oid"], "size": each["size"]}
            upload = {"actions": {"upload": {"href": f"{self.url}/lfs/{each['oid']}"}}}
            return kept if each["oid"] in self.objects else kept | upload

        return 200, {"transfer": "basic", "objects": list(map(described, objects))}, {}

    def _at(self, name: str, revision: str, use: Callable[[Repository, str, dict[str, File]], Answer]) -> Answer:
        repository = self.repositories.get(name)
        if repository is None:
            return _missing("RepoNotFound", "Repository not found")
        commit = repository.at(revision)
        return use(repository, *commit) if commit else _missing("RevisionNotFound", "Invalid rev id")

    def _info(self, name: str, revision: str) -> Answer:
        fields = lambda repository, sha, _: {"id": name, "sha": sha, "private": repository.private}  # noqa: E731
        return self._at(name, revision, lambda *commit: (200, fields(*commit), {}))

    def _modes(self, name: str, revision: str, uploads: list[dict[str, Any]]) -> Answer:
        return self._at(
            name, revision, lambda _, __, files: (200, {"files": [_mode(each["path"], files) for each in uploads]}, {})
        )

    def _tree(self, name: str, revision: str) -> Answer:
        listed = lambda _, __, files: (200, [_entry(*each) for each in files.items()], {})  # noqa: E731
        return self._at(name, revision, listed)

    def _committed(self, name: str, branch: str, body: bytes) -> Answer:
        def made(repository: Repository, newest: str, before: dict[str, File]) -> Answer:
            files = dict(before)
            for line in (json.loads(line) for line in body.splitlines() if line):
                value = line["value"]
                if line["key"] == "header" and value.get("parentCommit") not in (None, newest):
                    return 412, {"error": "The expected parent commit is not the newest"}, {}
                if line["key"] == "file":
                    files[value["path"]] = ("regular", base64.b64decode(value["content"]))
                if line["key"] == "lfsFile":
                    if value["oid"] not in self.objects:
                        return 400, {"error": f"LFS pointer without content: {value['path']}"}, {}
                    files[value["path"]] = ("lfs", self.objects[value["oid"]])
                if line["key"] == "deletedFile":
                    del files[value["path"]]
            number = repository.commit(branch, files)
            return 200, {"commitUrl": f"{self.url}/datasets/{name}/commit/{number}", "commitOid": number}, {}

        return self._at(name, branch, made)


def _missing(code: str, text: str) -> Answer:
    return 404, {"error": text}, {"X-Error-Code": code, "X-Error-Message": text}


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path: str, file: File) -> dict[str, Any]:
    kind, content = file
    entry = {"type": "file", "path": path, "size": len(content), "oid": _blob(content)}
    if kind == "lfs":
        oid = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 130}
    return entry


def _mode(path: str, files: Mapping[str, File]) -> dict[str, Any]:
    kind = "lfs" if path.endswith((".parquet", ".png")) else "regular"
    entry = _entry(path, files[path]) if path in files else {}
    return {"path": path, "uploadMode": kind, "shouldIgnore": False, "oid": entry.get("lfs", entry).get("oid")}


@contextmanager
def push_hub() -> Iterator[Hub]:
    """Serve a hub."""
    hub = Hub()

    class Answers(Handler):
        protocol_version = "HTTP/1.1"

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def answer(self) -> None:
            body, path = self._body(), urlsplit(self.path).path
            free = self.command not in ("POST", "PUT") or "/lfs/" in path
            if free or self.headers.get("Authorization") == f"Bearer {TOKEN}":
                status, content, head = hub.answer(self.command, path, body)
            else:
                status, content, head = 401, {"error": "Who?"}, {}
            self.reply(status, json.dumps(content).encode(), head)

    with listening(Answers) as hub.url:
        yield hub
