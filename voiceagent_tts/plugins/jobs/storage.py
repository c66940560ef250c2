"""The files of jobs: a folder that the servers share, and signed links, which end."""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from voiceagent_tts.errors import ErrorCode, InvalidRequestError, UnauthorizedError

_FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_NAME = re.compile(rf"[0-9a-f]{{32}}\.({'|'.join(_FORMATS)})")
_UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True)
class JobStorage:
    """Keeps files in a folder, and makes links to the servers. Its methods block.

    Attributes:
        folder: the folder; all servers of one Redis need the same.
    """

    folder: Path
    secret: bytes

    def save(self, name: str, data: bytes | bytearray) -> None:
        """Store a file: it is complete, or not there.

        Raises:
            OSError: it cannot be stored.
        """
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

    def delete(self, job_id: str) -> None:
        """Delete the file of a job, if there is one.

        Raises:
            OSError: it cannot be deleted.
        """
        for each in _FORMATS:
            (self.folder / f"{job_id}.{each}").unlink(missing_ok=True)

    def link(self, name: str, base_url: str, expires_at: int) -> str:
        """A link to a server, which works without an API key until `expires_at` (s since 1970)."""
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
        """Delete files older than `keep_s`, also unfinished ones; return how many.

        Everything else in the folder stays.
        """
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
