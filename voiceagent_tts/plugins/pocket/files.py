"""Fetches the files of Pocket TTS models from Hugging Face, before an engine loads them.

The hub's client shows the progress, continues an interrupted download, and keeps the files where
`pocket-tts` looks for them; `HF_HOME`, `HF_HUB_OFFLINE` and `HF_TOKEN` have their usual meaning.
"""

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.hub import failed_download, huggingface_client
from voiceagent_tts.plugins.pocket.published import HubFile, weights_of


def is_stored(model: str) -> bool:
    """Whether all files of a model are on this machine; never uses the network."""
    try:
        weights = weights_of(model)
    except CheckpointError:
        return False
    choices = [file for file in (weights.cloning, weights.plain) if file is not None]
    has_weights = not choices or any(_is_stored(file) for file in choices)
    return has_weights and all(_is_stored(file) for file in weights.shared)


def fetch(model: str) -> None:
    """Download the files of a model that are not on this machine.

    The weights that can clone are preferred. Where the hub refuses them, those without cloning are
    downloaded, as `pocket-tts` does itself.

    Raises:
        CheckpointError: there is no such model, or it cannot be downloaded.
    """
    weights = weights_of(model)
    try:
        for file in weights.shared:
            _download(file)
        _download_one_of(weights.cloning, weights.plain)
    except Exception as error:  # the hub's client raises the errors of its own HTTP library too
        raise failed_download(f"Pocket TTS {model}", error) from error


def _download_one_of(cloning: HubFile | None, plain: HubFile | None) -> None:
    if cloning is None or plain is None:
        for file in filter(None, (cloning, plain)):
            _download(file)
        return
    if _is_stored(plain) and not _is_stored(cloning):
        return  # as refused before; `pocket-tts` asks again when it loads
    try:
        _download(cloning)
    except Exception:  # refused, or without a network: the other file's error says which
        _download(plain)


def _download(file: HubFile) -> None:
    if not _is_stored(file):
        huggingface_client().hf_hub_download(file.repo, file.path, revision=file.revision)


def _is_stored(file: HubFile) -> bool:
    find = huggingface_client().try_to_load_from_cache
    return isinstance(find(file.repo, file.path, revision=file.revision), str)
