"""A model's name → its folder: one that is there already, or what a hub keeps, downloaded once.

Downloads go through the hubs' own clients and into their own caches, where other programs find
them: `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_OFFLINE` and `HF_TOKEN` mean what they mean there, and what
was interrupted goes on where it stopped. Knows no weights and no torch.
"""

import hashlib
import importlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from voiceagent_tts.errors import CheckpointError

Source = Literal["hf", "modelscope"]

CODEC_ID = "Qwen/Qwen3-TTS-Tokenizer-12Hz"
ALIGNER_ID = "Qwen/Qwen3-ForcedAligner-0.6B-hf"
PUBLISHED = {
    "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice": "nine speakers, told how to speak",
    "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign": "voices from a description",
    "Qwen/Qwen3-TTS-12Hz-1.7B-Base": "cloned voices",
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice": "nine speakers, smaller",
    "Qwen/Qwen3-TTS-12Hz-0.6B-Base": "cloned voices, smaller",
    CODEC_ID: "the codec alone, which every model brings",
    ALIGNER_ID: "exact word times, for any voice",
}
"""Ids on both hubs, and what each is for."""

_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_BLOB_CHARS = {40: "sha1", 64: "sha256"}
_CHUNK_BYTES = 2**24

Progress = Callable[[int, int], None]
"""Told how many bytes of how many are done."""


@dataclass(frozen=True, slots=True)
class ModelId:
    """A repository on a hub, at a branch, a tag or a commit; None for its default branch."""

    repo: str
    revision: str | None = None


def parse_id(model: str) -> ModelId:
    """`OWNER/NAME` or `OWNER/NAME@REVISION`.

    Raises:
        CheckpointError: it is neither.
    """
    found = _ID.fullmatch(model)
    if found is None:
        raise CheckpointError(
            f"{model}: expected the folder of a model, or an id such as {next(iter(PUBLISHED))}, "
            "with @REVISION behind it for a certain one"
        )
    return ModelId(found["repo"], found["revision"])


def find_model(model: str) -> Path:
    """The folder of a model that is on this machine, without any network.

    Args:
        model: a folder, or `OWNER/NAME[@REVISION]` of what was downloaded.

    Raises:
        CheckpointError: it is not here, or not complete.
    """
    if Path(model).is_dir():
        return Path(model)
    wanted = parse_id(model)
    folder = stored_folder(wanted)
    if folder is None:
        raise CheckpointError(
            f"{model}: is no folder, and was not downloaded or not completely: "
            f"`voiceagent-tts models download {wanted.repo}`"
        )
    return folder


def fetch_model(model: str) -> Path:
    """The folder of a model, which is downloaded where it is not here.

    A copy that is here is taken as it is: only `download_model` looks for a newer one.

    Raises:
        CheckpointError: it is not here and cannot be downloaded.
    """
    if Path(model).is_dir():
        return Path(model)
    wanted = parse_id(model)
    return stored_folder(wanted) or download_model(wanted)


def stored_folder(wanted: ModelId) -> Path | None:
    """Where a hub's client has put a model, complete; None where it has not."""
    return _stored_by_huggingface(wanted) or _stored_by_modelscope(wanted)


def download_model(wanted: ModelId, source: Source = "hf") -> Path:
    """Bring a model here, or what of it is missing, and show how far that is.

    Where the hub cannot be reached, a complete copy that is here will do.

    Raises:
        CheckpointError: the hub does not have it, cannot be reached or is not supported here.
    """
    download = _from_huggingface if source == "hf" else _from_modelscope
    try:
        return download(wanted)
    except CheckpointError:
        raise
    except Exception as error:  # of whichever HTTP library the hub's client is made with
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise CheckpointError(
            f"{wanted.repo}: is not on this machine and cannot be downloaded: {reason}"
        ) from error


def damaged_files(folder: Path, progress: Progress = lambda done, total: None) -> list[Path]:
    """Files whose content is not what the hub has.

    Hugging Face's cache keeps every file under its checksum: SHA-256 of large files, git's SHA-1
    of small ones. Files of another layout carry none and are not looked at.

    Args:
        folder: of a downloaded model.
        progress: told of the bytes that were read.
    """
    files = [file for file in sorted(folder.rglob("*")) if _checksum(file)]
    total = sum(file.stat().st_size for file in files)
    done = 0
    damaged: list[Path] = []
    for file in files:
        if _digest(file) != _checksum(file):
            damaged.append(file)
        done += file.stat().st_size
        progress(done, total)
    return damaged


def _checksum(file: Path) -> str:
    """What the file's content must hash to; empty where nothing says so."""
    name = file.resolve().name if file.is_symlink() else ""
    is_hex = len(name) in _BLOB_CHARS and re.fullmatch(r"[0-9a-f]+", name)
    return name if is_hex else ""


def _digest(file: Path) -> str:
    size = file.stat().st_size
    digest = hashlib.new(_BLOB_CHARS[len(_checksum(file))])
    if digest.name == "sha1":
        digest.update(f"blob {size}\0".encode())
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _from_huggingface(wanted: ModelId) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(wanted.repo, revision=wanted.revision))


def _stored_by_huggingface(wanted: ModelId) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(wanted.repo, revision=wanted.revision, local_files_only=True)
    except (LocalEntryNotFoundError, ValueError):
        return None
    return Path(folder)


def _from_modelscope(wanted: ModelId) -> Path:
    if importlib.util.find_spec("modelscope") is None:
        raise CheckpointError(
            f"{wanted.repo}: cannot be downloaded from ModelScope without its client: "
            "pip install 'voiceagent-tts[modelscope]'"
        )
    client = importlib.import_module("modelscope")
    return Path(client.snapshot_download(wanted.repo, revision=wanted.revision))


def _stored_by_modelscope(wanted: ModelId) -> Path | None:
    if importlib.util.find_spec("modelscope") is None:
        return None
    client = importlib.import_module("modelscope")
    try:
        folder = client.snapshot_download(
            wanted.repo, revision=wanted.revision, local_files_only=True
        )
    except Exception:  # its errors have no base of their own in every version
        return None
    return Path(folder)
