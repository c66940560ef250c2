"""The audit log: what was changed, by whom, in a chain of hashes that `verify` checks.

Each line is a JSON object with the hash of the line before it, so that a line cannot be changed,
removed or inserted without a trace. Only the last lines can be cut off unnoticed; compare the last
hash with the one that the server logged.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

import structlog

from voiceagent_tts.access.disk_log import DiskLog, append_whole, open_private
from voiceagent_tts.errors import InvalidRequestError

_FIRST = "0" * 64
_MAX_PENDING = 10_000

_log = structlog.get_logger(__name__)


class AuditBrokenError(InvalidRequestError):
    """A line of an audit log is not the one that was written there."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The end of a chain: number of lines, and the hash of the last one."""

    lines: int = 0
    last_hash: str = _FIRST

    def next_line(self, fields: dict[str, Any]) -> tuple[str, "Chain"]:
        """Return the line for a record, and the chain with it."""
        record = {"seq": self.lines + 1, **fields, "previous": self.last_hash}
        digest = _hash(record)
        return _json({**record, "hash": digest}), Chain(self.lines + 1, digest)

    def check(self, line: str) -> "Chain":
        """Return the chain with a line that was read.

        Raises:
            AuditBrokenError: the line does not continue the chain.
        """
        place = f"line {self.lines + 1}"
        try:
            record: dict[str, Any] = json.loads(line)
            digest = record.pop("hash")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise AuditBrokenError(f"{place} is no record of an audit log") from None
        if record.get("previous") != self.last_hash or record.get("seq") != self.lines + 1:
            raise AuditBrokenError(
                f"{place} does not follow the line before it: lines were removed, inserted or moved"
            )
        if digest != _hash(record):
            raise AuditBrokenError(f"{place} was changed: its hash is not that of its fields")
        return Chain(self.lines + 1, digest)


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def _hash(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def verify(path: Path) -> Chain:
    """Check every line of an audit log; return the end of its chain.

    Raises:
        AuditBrokenError: a line was changed, removed, inserted or moved; the message names it.
        OSError: the file cannot be read.
    """
    chain = Chain()
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                raise AuditBrokenError(f"line {chain.lines + 1} is incomplete")
            chain = chain.check(line.decode(errors="replace"))
    return chain


class AuditLog:
    """Appends records to an audit log; records that a full disk refuses are written later.

    Args:
        path: the file. A lock keeps other servers away from it, as two writers break the chain.
        on_failure: called with `audit_log` for every write that fails; may run in a thread.
        now: the time, in UTC.

    Raises:
        InvalidRequestError: another program writes this log, or it cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        on_failure: Callable[[str], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._file = _open_locked(path)
        self._now = now
        self._chain = _continued(self._file, path)
        self._pending: list[dict[str, Any]] = []
        self._disk = DiskLog("audit_log", on_failure)
        _log.info("audit_log_opened", lines=self._chain.lines, last_hash=self._chain.last_hash)

    def record(self, event: str, **fields: Any) -> None:
        """Append a record, in the background."""
        time = self._now().isoformat(timespec="milliseconds")
        if len(self._pending) < _MAX_PENDING:
            self._pending.append({"time": time, "event": event, **fields})
        self._disk.submit(self._write)

    def retry(self) -> None:
        """Try again to write the records that could not be written."""
        if self._pending:
            self._disk.submit(self._write)

    def _write(self) -> None:
        while self._pending:
            line, chain = self._chain.next_line(self._pending[0])
            append_whole(self._file, f"{line}\n".encode())
            self._chain = chain
            del self._pending[0]
            _sync(self._file)

    def close(self) -> None:
        """Write what waits, and release the file."""
        self._disk.close()
        self._file.close()


def _sync(file: FileIO) -> None:
    """Write to the disk itself: an audit log should outlast a power failure."""
    try:
        os.fsync(file.fileno())
    except OSError:
        _log.warning("audit_log_not_synced")


def _open_locked(path: Path) -> FileIO:
    path = path.expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open_private(path)
    except OSError as error:
        raise InvalidRequestError(f"{path}: cannot open the audit log: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InvalidRequestError(
            f"another server writes the audit log {path}; give each server its own file"
        ) from None
    return file


def _continued(file: FileIO, path: Path) -> Chain:
    """Return the chain of the lines that the file has, to be continued.

    A power failure may leave an incomplete last line, which is removed. After any other damage the
    chain is continued from the last line, so that `verify` still reports the damage.
    """
    chain, size, problem = Chain(), 0, ""
    for line in _lines_of(path):
        if not line.endswith(b"\n"):
            _log.warning("audit_log_line_removed", path=str(path), bytes=len(line))
            os.ftruncate(file.fileno(), size)
            break
        size += len(line)
        try:
            chain = chain.check(line.decode(errors="replace"))
        except AuditBrokenError as error:
            problem = problem or error.message
            chain = Chain(chain.lines + 1, _stated_hash(line))
    if problem:
        _log.error("audit_log_broken", path=str(path), problem=problem)
    return chain


def _lines_of(path: Path) -> Iterator[bytes]:
    path = path.expanduser()
    if path.is_file():  # and not a device, which may have no end
        with path.open("rb") as file:
            yield from file


def _stated_hash(line: bytes) -> str:
    try:
        return str(json.loads(line)["hash"])
    except (ValueError, KeyError, TypeError):
        return _FIRST
