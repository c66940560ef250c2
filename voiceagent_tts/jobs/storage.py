"""Where the files of jobs are kept: a folder that the servers share, or a bucket of S3.

Links are signed and end: those of a folder by the servers, those of a bucket by S3.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

from voiceagent_tts.bucket import Bucket, is_bucket
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, UnauthorizedError

_ANSWER_S = 60.0
"""S3 may think for long after the last byte of a large file."""
_NAME = re.compile(r"[0-9a-f]{32}\.(mp3|opus|aac|flac|wav|pcm)")
_UNFINISHED = ".unfinished"


class JobStorage(Protocol):
    """Keeps files by name. Its methods block, so a server calls them in threads."""

    def save(self, name: str, data: bytes, content_type: str) -> None:
        """Store a file; raises OSError if it cannot be stored."""
        ...

    def link(self, name: str, base_url: str, expires_at: int) -> str:
        """A link that works without an API key, until `expires_at` (seconds since 1970)."""
        ...

    def delete_old(self, keep_s: float) -> int:
        """Delete files that are older than `keep_s`; returns how many."""
        ...


def open_storage(address: str, secret: bytes) -> JobStorage:
    """Open the storage at a folder's path or at `s3://BUCKET/PREFIX`.

    Raises:
        InvalidRequestError: the extra is missing, or the address cannot be used.
    """
    if is_bucket(address):
        return S3Storage(Bucket(address, "jobs_storage", answer_s=_ANSWER_S))
    return FolderStorage(Path(address).expanduser(), secret)


@dataclass(frozen=True, slots=True)
class FolderStorage:
    """Files in a folder, and links to the servers themselves.

    Attributes:
        folder: the folder; all servers of one Redis need the same.
        secret: signs the links.
    """

    folder: Path
    secret: bytes

    def save(self, name: str, data: bytes, content_type: str) -> None:
        """Store a file: it is complete, or not there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f"{name}.{secrets.token_hex(4)}{_UNFINISHED}"
        try:
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.folder / name)
        finally:
            unfinished.unlink(missing_ok=True)

    def link(self, name: str, base_url: str, expires_at: int) -> str:
        """A link to a server, which checks the signature."""
        query = {"expires": expires_at, "signature": self._signature(name, expires_at)}
        return f"{base_url}v1/audio/jobs/files/{name}?{urlencode(query)}"

    def open_link(self, name: str, expires_at: int, signature: str) -> Path:
        """Return the file of a link.

        Raises:
            UnauthorizedError: the signature is wrong, or the link has ended.
            InvalidRequestError: the file is no longer there.
        """
        is_genuine = hmac.compare_digest(
            signature.encode(), self._signature(name, expires_at).encode()
        )
        if not is_genuine or time.time() > expires_at:
            raise UnauthorizedError(
                "this link is not valid, or no longer; GET /v1/audio/jobs/{id} has a new one",
                code=ErrorCode.FORBIDDEN,
            )
        path = self.folder / name
        if not _NAME.fullmatch(name) or not path.is_file():
            raise InvalidRequestError("this file is no longer kept", code=ErrorCode.NOT_FOUND)
        return path

    def delete_old(self, keep_s: float) -> int:
        """Delete old files, also unfinished ones; leaves everything else in the folder."""
        deleted = 0
        for path in self.folder.glob("*"):  # empty where there is no folder yet
            is_ours = _NAME.fullmatch(path.name) or path.name.endswith(_UNFINISHED)
            with contextlib.suppress(FileNotFoundError):  # another server was faster
                if is_ours and path.stat().st_mtime < time.time() - keep_s:
                    path.unlink()
                    deleted += 1
        return deleted

    def _signature(self, name: str, expires_at: int) -> str:
        return hmac.new(self.secret, f"{name}\n{expires_at}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class S3Storage:
    """Files in a bucket.

    Attributes:
        bucket: the bucket; all servers of one Redis need the same.
    """

    bucket: Bucket

    def save(self, name: str, data: bytes, content_type: str) -> None:
        """Store a file."""
        self.bucket.put(name, data, content_type)

    def link(self, name: str, base_url: str, expires_at: int) -> str:
        """A link to S3 itself, signed by it."""
        return self.bucket.link(name, max(1, expires_at - int(time.time())))

    def delete_old(self, keep_s: float) -> int:
        """Delete old files; leaves objects with other names."""
        old = [
            each.name
            for each in self.bucket.objects()
            if _NAME.fullmatch(each.name) and each.modified_at < time.time() - keep_s
        ]
        for name in old:
            self.bucket.delete(name)
        return len(old)
