"""Resolve a model's name to a local folder, downloading the model once.

Downloads use the hubs' own clients and caches, which other programs share: `HF_ENDPOINT`,
`HF_HOME`, `HF_HUB_OFFLINE` and `HF_TOKEN` have their usual meaning, and an interrupted download
continues where it stopped.
"""

import hashlib
import importlib
import importlib.util
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from voiceagent_tts.errors import CheckpointError

Source = Literal["hf", "modelscope"]

CODEC_ID = "Qwen/Qwen3-TTS-Tokenizer-12Hz"
ALIGNER_ID = "Qwen/Qwen3-ForcedAligner-0.6B-hf"
PUBLISHED = {
    "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice": "nine speakers, speaking styles",
    "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign": "voices from a description",
    "Qwen/Qwen3-TTS-12Hz-1.7B-Base": "cloned voices",
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice": "nine speakers, smaller",
    "Qwen/Qwen3-TTS-12Hz-0.6B-Base": "cloned voices, smaller",
    CODEC_ID: "the codec alone; models include it",
    ALIGNER_ID: "word times of complete audio; accuracy here not yet measured",
}
"""Model ids on both hubs, and the purpose of each."""

_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_BLOB = re.compile("(?:[0-9a-f]{40}|[0-9a-f]{64})")
_MODEL_SUFFIXES = (".safetensors", ".json", ".yaml")
_SAMPLES = 64
_SAMPLE_BYTES = 2**16

Progress = Callable[[int, int], None]
"""Function called with the finished and the total number of bytes."""


def fingerprint(model: Path) -> str:
    """Hash the files of a model by their names, sizes and 64 samples of each.

    Another training changes weights everywhere, so samples tell it from the one before.
    """
    digest = hashlib.sha256()
    found = [model] if model.is_file() else model.rglob("*")
    for path in sorted(path for path in found if path.suffix in _MODEL_SUFFIXES):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(number * max(0, size - _SAMPLE_BYTES) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ModelId:
    """A repository on a hub.

    Attributes:
        revision: a branch, tag or commit; None for the default branch.
        files: the files that are wanted, or patterns of them; all where it is empty.
    """

    repo: str
    revision: str | None = None
    files: tuple[str, ...] = ()

    @property
    def selection(self) -> dict[str, Any]:
        """Arguments that select it, for the clients of both hubs."""
        return {"revision": self.revision, "allow_patterns": list(self.files) or None}


def parse_id(model: str) -> ModelId:
    """Parse `OWNER/NAME` or `OWNER/NAME@REVISION`.

    Raises:
        CheckpointError: the name has neither form.
    """
    found = _ID.fullmatch(model)
    if found is None:
        raise CheckpointError(
            f"{model}: expected the folder of a model, or an id such as {next(iter(PUBLISHED))}; "
            "append @REVISION to select a revision"
        )
    return ModelId(found["repo"], found["revision"])


def find_model(model: str) -> Path:
    """Return the folder of a model on this machine, given by folder or id; never uses the network.

    Raises:
        CheckpointError: the model is not on this machine, or incomplete.
    """
    if Path(model).is_dir():
        return Path(model)
    wanted = parse_id(model)
    folder = stored_folder(wanted)
    if folder is None:
        raise CheckpointError(
            f"{model}: expected a folder or a completely downloaded model; "
            f"try `voiceagent-tts models download {wanted.repo}`"
        )
    return folder


def fetch_model(model: str) -> Path:
    """Return the folder of a model; download the model if it is not on this machine.

    An existing copy is used as it is; only `download_model` checks for a newer one.

    Raises:
        CheckpointError: the model is not on this machine and cannot be downloaded.
    """
    if Path(model).is_dir():
        return Path(model)
    wanted = parse_id(model)
    return stored_folder(wanted) or download_model(wanted)


def stored_folder(wanted: ModelId) -> Path | None:
    """Return the folder of a completely downloaded model, or None."""
    return _stored_by_huggingface(wanted) or _stored_by_modelscope(wanted)


def download_model(wanted: ModelId, source: Source = "hf") -> Path:
    """Download a model, or its missing files, and show the progress.

    If the hub cannot be reached, a complete local copy is used.

    Raises:
        CheckpointError: the hub has no such model, cannot be reached, or its client is missing.
    """
    download = _from_huggingface if source == "hf" else _from_modelscope
    try:
        return download(wanted)
    except (CheckpointError, ModuleNotFoundError):  # the command line names a package's extra
        raise
    except Exception as error:  # each client raises the errors of its own HTTP library
        raise failed_download(wanted.repo, error, source) from error


def failed_download(what: str, error: Exception, source: Source = "hf") -> CheckpointError:
    """What to raise for an error of a hub's client: what failed, why, and what to do next."""
    line = next(iter(str(error).splitlines()), "")
    reason = line.removeprefix("Got: ").rstrip(".") or type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403, 404):
        advice = "check the name, and set HF_TOKEN for a model whose terms you have accepted"
    elif source == "hf":
        advice = (
            "try again with a network, set HF_ENDPOINT to a mirror, or copy the folder HF_HOME of "
            f"a machine that has the files to {huggingface_client().constants.HF_HOME}"
        )
    else:
        advice = "try again with a network, or copy the cache of a machine that has the files"
    return CheckpointError(
        f"{what}: not on this machine, and the download failed: {reason}; {advice}"
    )


def check_files(folder: Path, progress: Progress = lambda done, total: None) -> None:
    """Compare the content of a downloaded model with the hub's; remove the files that differ.

    Hugging Face's cache names every file by its checksum: SHA-256 for large files, git's SHA-1 for
    small ones. Files without such a name are not checked. `progress` gets the bytes read and the
    total.

    Raises:
        CheckpointError: files were removed; another download brings them again.
    """
    links = [file for file in sorted(folder.rglob("*")) if file.is_symlink()]
    blobs = {link.resolve(): link.name for link in links if _BLOB.fullmatch(link.resolve().name)}
    total = sum(blob.stat().st_size for blob in blobs)
    done = 0
    damaged: list[str] = []
    for blob, name in blobs.items():
        done += blob.stat().st_size
        if _digest(blob) != blob.name:
            damaged.append(name)
            blob.unlink()
        progress(done, total)
    if damaged:
        names = ", ".join(damaged)
        raise CheckpointError(f"{folder}: damaged and removed: {names}; download it again")


def _digest(blob: Path) -> str:
    is_large = len(blob.name) == hashlib.sha256().digest_size * 2
    header = b"" if is_large else f"blob {blob.stat().st_size}\0".encode()
    kind = hashlib.sha256 if is_large else hashlib.sha1
    with blob.open("rb") as content:
        return hashlib.file_digest(content, lambda: kind(header)).hexdigest()


def huggingface_client() -> Any:
    """Return the package `huggingface_hub`, whose warnings go where the program's log goes.

    It writes them itself, and would do so a second time in a program with a log.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    import huggingface_hub.constants
    import huggingface_hub.errors
    import huggingface_hub.utils

    if logging.getLogger().handlers:
        logging.getLogger(huggingface_hub.__name__).handlers.clear()
    return huggingface_hub


def _from_huggingface(wanted: ModelId) -> Path:
    return Path(huggingface_client().snapshot_download(wanted.repo, **wanted.selection))


def _stored_by_huggingface(wanted: ModelId) -> Path | None:
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    client = huggingface_client()
    try:
        folder = client.snapshot_download(wanted.repo, local_files_only=True, **wanted.selection)
    except (client.errors.LocalEntryNotFoundError, ValueError):
        return None
    return Path(folder)


def _from_modelscope(wanted: ModelId) -> Path:
    if importlib.util.find_spec("modelscope") is None:
        raise CheckpointError(
            f"{wanted.repo}: a download from ModelScope needs its client: install the package "
            "modelscope"
        )
    client = importlib.import_module("modelscope")
    return Path(client.snapshot_download(wanted.repo, **wanted.selection))


def _stored_by_modelscope(wanted: ModelId) -> Path | None:
    if importlib.util.find_spec("modelscope") is None:
        return None
    client = importlib.import_module("modelscope")
    try:
        folder = client.snapshot_download(wanted.repo, local_files_only=True, **wanted.selection)
    except Exception:  # its errors have no common base class in all versions
        return None
    return Path(folder)
