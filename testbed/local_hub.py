"""Serve Hugging Face's client from a local hub that injects faults on demand."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from testbed.http_server import Handler, answering

_LARGE_BYTES = 100_000


@dataclass
class Hub:
    """Repositories of the hub, faults to inject, and a record of partial requests.

    Attributes:
        commits: (repository, commit) -> folder with its files; the last one is `main`.
        cuts: files whose first response breaks off half-way.
        damages: files whose content is sent changed.
        ranges: (file, first byte) of every response that began in the middle.
    """

    commits: dict[tuple[str, str], Path]
    cuts: set[str] = field(default_factory=set)
    damages: set[str] = field(default_factory=set)
    ranges: list[tuple[str, int]] = field(default_factory=list)
    url: str = ""

    def folder(self, repository: str, revision: str) -> tuple[str, Path] | None:
        """Return commit and folder of a revision, or None for an unknown repository."""
        known = [(c, path) for (name, c), path in self.commits.items() if name == repository]
        for commit, path in reversed(known):
            if revision in ("main", commit):
                return commit, path
        return None


def commit_of(number: int) -> str:
    return f"{number:040x}"


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    class OfHub(_Handler):
        of = hub

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), OfHub)) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        yield hub


def _entry(file: Path, path: str) -> dict[str, Any]:
    data = file.read_bytes()
    git = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": git}
    if len(data) > _LARGE_BYTES:
        sha256 = hashlib.sha256(data).hexdigest()
        entry["lfs"] = {"oid": sha256, "size": len(data), "pointerSize": 130}
    return entry


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    of: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        owner, name, verb, revision, *rest = [*(parts[2:] if is_api else parts), "", ""]
        found = self.of.folder(f"{owner}/{name}", revision)
        if found is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self._finish(b"")
        elif is_api:
            self._describe(verb, *found)
        else:
            self._deliver(*found, "/".join(rest).rstrip("/"))

    def _describe(self, verb: str, commit: str, folder: Path) -> None:
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        entries = [_entry(file, str(file.relative_to(folder))) for file in files]
        siblings = [{"rfilename": entry["path"]} for entry in entries]
        answer = entries if verb == "tree" else {"id": "x/y", "sha": commit, "siblings": siblings}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self._finish(json.dumps(answer).encode())

    def _deliver(self, commit: str, folder: Path, path: str) -> None:
        data = (folder / path).read_bytes()
        entry = _entry(folder / path, path)
        start = int(self.headers.get("Range", "bytes=0-")[len("bytes=") :].split("-")[0])
        if path in self.of.damages:
            data = bytes(len(data))
        self.send_response(206 if start else 200)
        if start:
            self.of.ranges.append((path, start))
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", f'"{entry.get("lfs", entry)["oid"]}"')
        self.send_header("X-Repo-Commit", commit)
        self.send_header("Accept-Ranges", "bytes")
        is_cut = path in self.of.cuts and self.command == "GET"
        self._finish(data[start:], sent=len(data) // 2 if is_cut else None)
        if is_cut:
            self.of.cuts.discard(path)
            self.close_connection = True

    def _finish(self, body: bytes, sent: int | None = None) -> None:
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:sent])
