"""Cloned voices in a bucket that servers share, with copies in a folder from which engines read.

A change goes to the bucket first and into the copies then. `pull` makes the copies those of the
bucket; servers do it every second. Knows which names voices have, and nothing of engines.
"""

import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from voiceagent_tts.bucket import Bucket, BucketError, StoredObject, is_bucket
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.voice_file import read_header
from voiceagent_tts.voices import (
    CLONE_SUFFIX,
    CONSENTS,
    LEXICON_SUFFIX,
    RECORDS,
    VoiceFolder,
    is_clone_name,
)

_ANSWER_S = 5.0
_RETRY_MS = 2000
_MAX_OBJECT_BYTES = 100_000_000
"""An object is read into memory; a clone for several models of Pocket TTS has 20 MB for each."""

_LOCK = "changing.lock"
_LOCK_WAIT_S = 10.0
_LOCK_POLL_S = 0.1
_LOCK_LIFE_S = 60.0
"""A change takes a few requests of at most 14 s each; an older lock is that of a dead server."""

_COPIES_LOCK = ".copies.lock"
_ETAGS = ".etags.json"
_CONSENT_FILE = re.compile(r"cons_[0-9a-f]{32}\.(json|voice)")

_logger = logging.getLogger(__name__)


def open_voices(address: str, folder: Path, max_bytes: float) -> VoiceFolder:
    """Open the voices at a folder's path, or at `s3://BUCKET/PREFIX` with copies in `folder`.

    Args:
        address: where the voices are.
        folder: where engines read them; the same, unless the address is that of a bucket.
        max_bytes: maximum size of what is in a bucket.

    Raises:
        InvalidRequestError: the address cannot be used, or the copies cannot be stored.
    """
    if not is_bucket(address):
        return VoiceFolder(folder)
    return BucketVoiceFolder(
        Bucket(address, "voices_folder", answer_s=_ANSWER_S), folder, max_bytes
    )


class BucketVoiceFolder(VoiceFolder):
    """The voices of a bucket. Reads only the copies; its other methods block for seconds.

    Copies belong to this user alone. Several processes may share them.

    Args:
        bucket: the bucket.
        path: folder of the copies.
        max_bytes: maximum size of all objects, and so of the copies.

    Raises:
        InvalidRequestError: the folder of the copies cannot be used.
    """

    _file_mode = 0o600
    _folder_mode = 0o700

    def __init__(self, bucket: Bucket, path: Path, max_bytes: float) -> None:
        super().__init__(path)
        self._bucket = bucket
        self._max_bytes = max_bytes
        self._refused: dict[str, str] = {}
        """ETags of objects that are no files of voices, by name."""
        self._left_out: set[str] = set()
        try:
            path.mkdir(self._folder_mode, parents=True, exist_ok=True)
            path.chmod(self._folder_mode)
        except OSError as error:
            raise InvalidRequestError(
                f"{path}: cannot keep copies of voices: {error.strerror}; set "
                "VOICEAGENT_TTS_VOICES_CACHE to a folder of this user"
            ) from error

    def write(self, file: str, content: bytes) -> None:
        """As `VoiceFolder`, in the bucket and here.

        Raises:
            InvalidRequestError: there is no room for it.
            OverloadedError: the bucket cannot be reached; it may have the file nevertheless.
        """
        with self._alone(_COPIES_LOCK):
            self._check_room(file, content)
            with self._replacing(file, content), _reaching():
                etag = self._bucket.put(file, content)
            self._save_etags({**self._etags(), file: etag})

    def delete(self, file: str) -> bool:
        """As `VoiceFolder`, in the bucket and here.

        Raises:
            OverloadedError: the bucket cannot be reached; the file is still here.
        """
        with self._alone(_COPIES_LOCK):
            with _reaching():
                self._bucket.delete(file)
            return super().delete(file)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """As `VoiceFolder`; the copies are those of the bucket when the block begins.

        Raises:
            OverloadedError: the bucket cannot be reached, or another server is changing it.
        """
        with super().changing(), self._locked():
            self.pull()
            yield

    def pull(self) -> bool:
        """Make the copies those of the bucket; returns whether any has changed.

        An object that is no file of a voice is not copied; an earlier copy stays.

        Raises:
            OverloadedError: the bucket cannot be reached; copies stay as they are.
            InvalidRequestError: a copy cannot be stored.
        """
        with self._alone(_COPIES_LOCK):
            with _reaching():
                objects = [each for each in self._bucket.objects() if _is_ours(each.name)]
            fitting = self._fitting(objects)
            names = {each.name for each in fitting}
            gone = self._files() - names
            for file in gone:
                super().delete(file)
            etags = self._etags()
            copied = {file: etag for file, etag in etags.items() if file in names}
            try:
                for each in fitting:
                    if self._is_news(each, copied) and self._copy(each):
                        copied[each.name] = each.etag
            finally:
                if copied != etags:
                    self._save_etags(copied)
            return bool(gone) or copied != etags

    def _fitting(self, objects: list[StoredObject]) -> list[StoredObject]:
        """Those that there is room for, the smallest first: records come before voices."""
        fitting, size_bytes = list[StoredObject](), 0
        for each in sorted(objects, key=lambda each: (each.size_bytes, each.name)):
            size_bytes += each.size_bytes
            if size_bytes <= self._max_bytes and each.size_bytes <= _MAX_OBJECT_BYTES:
                fitting.append(each)
        left_out = {each.name for each in objects} - {each.name for each in fitting}
        if left_out - self._left_out:
            _logger.error(
                "%d files of voices are left out: all exceed %d bytes",
                len(left_out),
                self._max_bytes,
            )
        self._left_out = left_out
        return fitting

    def _is_news(self, each: StoredObject, copied: dict[str, str]) -> bool:
        if self._refused.get(each.name) == each.etag:
            return False
        return copied.get(each.name) != each.etag or not (self.path / each.name).is_file()

    def _copy(self, each: StoredObject) -> bool:
        """Copy an object; returns whether it was one that can be copied."""
        with _reaching():
            content = self._bucket.get(each.name)
        if content is None:  # deleted at this moment
            return False
        if not _is_whole(each.name, content):
            self._refused[each.name] = each.etag
            _logger.error("the object %s is damaged (%d bytes)", each.name, len(content))
            return False
        with self._replacing(each.name, content):
            pass
        return True

    def _check_room(self, file: str, content: bytes) -> None:
        others = sum((self.path / each).stat().st_size for each in self._files() - {file})
        if others + len(content) > self._max_bytes or len(content) > _MAX_OBJECT_BYTES:
            raise InvalidRequestError(
                f"expected at most {self._max_bytes / 1e6:g} MB of voices, got more; remove some, "
                "or raise VOICEAGENT_TTS_VOICES_CACHE_MB on all servers",
                code=ErrorCode.VOICE_QUOTA,
            )

    def _files(self) -> set[str]:
        """The copies, by the names of their objects."""
        found = (*self.path.glob("*"), *self.path.glob("*/*"))
        names = {path.relative_to(self.path).as_posix() for path in found}
        return {name for name in names if _is_ours(name)}

    def _etags(self) -> dict[str, str]:
        """ETags of the objects that were copied, by name."""
        try:
            return json.loads((self.path / _ETAGS).read_bytes())
        except (OSError, ValueError):
            return {}

    def _save_etags(self, etags: dict[str, str]) -> None:
        with self._replacing(_ETAGS, json.dumps(etags).encode()):
            pass

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock among the servers of the bucket."""
        token = secrets.token_hex(16).encode()
        with _reaching():
            self._acquire(token)
        try:
            yield
        finally:
            with contextlib.suppress(BucketError):  # without it, the lock ends by its age
                if self._bucket.get(_LOCK) == token:
                    self._bucket.delete(_LOCK)

    def _acquire(self, token: bytes) -> None:
        ends_at = time.monotonic() + _LOCK_WAIT_S
        while not self._bucket.create(_LOCK, token):
            age_s = self._bucket.age_s(_LOCK)
            if age_s is not None and age_s > _LOCK_LIFE_S:
                _logger.warning("the lock of the voices is %d s old: it is taken over", age_s)
                self._bucket.delete(_LOCK)
            elif time.monotonic() > ends_at:
                raise OverloadedError(
                    "another server is changing the voices; try again later",
                    code=ErrorCode.STORAGE_UNAVAILABLE,
                    retry_after_ms=_RETRY_MS,
                )
            else:
                time.sleep(_LOCK_POLL_S)


@contextlib.contextmanager
def _reaching() -> Iterator[None]:
    """Turn the failure of a bucket into an answer that says nothing of where it is."""
    try:
        yield
    except BucketError as error:
        raise OverloadedError(
            "the storage of the voices cannot be reached; nothing can be changed now, try again "
            "later",
            code=ErrorCode.STORAGE_UNAVAILABLE,
            retry_after_ms=_RETRY_MS,
        ) from error


def _is_ours(file: str) -> bool:
    """Whether this is the name of a file about voices; such a name stays inside the folder."""
    folder, _, name = file.rpartition("/")
    if folder == CONSENTS:
        return _CONSENT_FILE.fullmatch(name) is not None
    suffixes = {"": (CLONE_SUFFIX, LEXICON_SUFFIX), RECORDS: (".json",)}.get(folder, ())
    return any(name.endswith(s) and is_clone_name(name.removesuffix(s)) for s in suffixes)


def _is_whole(file: str, content: bytes) -> bool:
    """Whether a file has the form that its name says; a cut or foreign one has not."""
    try:
        if file.endswith(".json"):
            return isinstance(json.loads(content), dict)
        if file.endswith(LEXICON_SUFFIX):
            return True  # read with an error that names the mistake
        header, tensors_at = read_header(content)
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        return tensors_at + max(ends) == len(content)
    except (ValueError, KeyError, TypeError, IndexError):
        return False
    except RecursionError:  # JSON in thousands of brackets
        return False
