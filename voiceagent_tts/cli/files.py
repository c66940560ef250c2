"""Read and write the command line's files: audio, word times and lexicons.

The suffix selects the format. Commands check the names before they synthesise anything. A file is
written under a temporary name and renamed when complete, so an interrupted command leaves an
existing file unchanged.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voiceagent_tts.cli.settings import read_settings
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.hooks import plugin_modules
from voiceagent_tts.lexicon import MAX_CLIENT_ENTRIES, as_json, read_lexicon
from voiceagent_tts.protocol.messages import LexiconEntries, ProvenanceFields
from voiceagent_tts.replacing import replacing
from voiceagent_tts.text.punctuation import SENTENCE_ENDS, last_mark

if TYPE_CHECKING:
    import soundfile

FileFilter = Callable[[bytes, str, ProvenanceFields], bytes]
"""Changes a complete audio file: its bytes, its format (such as `wav`) and where its audio comes
from."""

STANDARD_OUTPUT = Path("-")
_AUDIO_FORMATS = {
    ".wav": ("WAV", "PCM_16"),
    ".flac": ("FLAC", "PCM_16"),
    ".ogg": ("OGG", "VORBIS"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
    ".opus": ("OGG", "OPUS"),
}
"""libsndfile's container and codec for each suffix."""
AUDIO_SUFFIXES = tuple(_AUDIO_FORMATS)
_WORDS_SUFFIXES = (".json", ".srt", ".vtt")
_MAX_CUE_CHARS = 42  # one line of a television subtitle
_MAX_CUE_S = 6.0
_UNKNOWN_END_S = 0.3


def check_audio_path(path: Path | None) -> None:
    """Check that an audio file, or standard output for `-`, can be written."""
    if path == STANDARD_OUTPUT and sys.stdout.isatty():
        raise InvalidRequestError("--output: expected a pipe or a file for -; got a terminal")
    if path is not None and path != STANDARD_OUTPUT:
        check_target(path, AUDIO_SUFFIXES, "--output: ")


def lexicon_entries(path: Path | None) -> LexiconEntries | None:
    """Read a lexicon to send with a context."""
    return None if path is None else as_json(read_lexicon(path, MAX_CLIENT_ENTRIES))


def check_words_path(path: Path | None) -> None:
    """Check that a file of word times can be written."""
    if path is not None:
        check_target(path, _WORDS_SUFFIXES, "--words: ")


def check_target(path: Path, suffixes: tuple[str, ...], option: str = "") -> None:
    """Check that a file can be written, before the work that produces its content.

    Its suffix, in lower case, is one of `suffixes`; a message names the `option`.
    """
    if path.suffix.lower() not in suffixes:
        raise InvalidRequestError(
            f"{option}expected a file name with suffix {', '.join(suffixes)}; got {path.name}"
        )
    if path.is_dir():
        raise InvalidRequestError(f"{option}expected a file; got the folder {path}")
    if not os.access(path.parent, os.W_OK):
        raise InvalidRequestError(f"{option}{path.parent} does not exist or is not writable")


def file_filters() -> list[FileFilter]:
    """Return the plugins' filters for audio files, for this machine's settings."""
    settings = read_settings({})
    filters = (plugin.file_filter(settings) for plugin in plugin_modules("audio_files"))
    return [each for each in filters if each is not None]


def filtered(
    file: bytes,
    suffix: str,
    filters: Sequence[FileFilter],
    stated: ProvenanceFields | None,
    sha256: str,
) -> bytes:
    """Apply the filters to an audio file with this suffix.

    Without the provenance that the server has `stated`, nothing is changed; `sha256` is the hex
    digest of its PCM16 samples.
    """
    if stated is not None:
        provenance = stated.model_copy(update={"sha256": sha256})
        for each in filters:
            file = each(file, suffix.removeprefix("."), provenance)
    return file


def write_audio(
    path: Path,
    pcm: bytes,
    filters: Sequence[FileFilter] = (),
    stated: ProvenanceFields | None = None,
) -> None:
    """Write PCM16 at 24 kHz in the format given by the suffix of `path`; to `-` as a WAV file."""
    import soundfile

    suffix = ".wav" if path == STANDARD_OUTPUT else path.suffix.lower()
    container, codec = _AUDIO_FORMATS[suffix]
    buffer = BytesIO()  # Python writes the file, so a full disk raises an error
    with soundfile.SoundFile(
        buffer, "w", SAMPLE_RATE_HZ, channels=1, format=container, subtype=codec
    ) as file:
        write_samples(file, pcm)
    data = filtered(buffer.getvalue(), suffix, filters, stated, hashlib.sha256(pcm).hexdigest())
    if path == STANDARD_OUTPUT:
        sys.stdout.buffer.write(data)
        return
    with replacing(path) as unfinished:
        unfinished.write_bytes(data)


def write_samples(file: "soundfile.SoundFile", pcm: bytes) -> None:
    """Write PCM16 to an open file, one second per call.

    libsndfile crashes if one call writes minutes of Vorbis.
    """
    samples = np.frombuffer(pcm, "<i2")
    for start in range(0, len(samples), SAMPLE_RATE_HZ):
        file.write(samples[start : start + SAMPLE_RATE_HZ])


def write_words(path: Path, words: Sequence[WordTimestamp]) -> None:
    """Write word times in the format given by the suffix of `path`."""
    match path.suffix.lower():
        case ".json":
            text = _as_json(words)
        case ".srt":
            blocks = enumerate(_subtitles(words, ","), start=1)
            text = "\n".join(f"{number}\n{block}" for number, block in blocks)
        case _:
            text = "\n".join(["WEBVTT\n", *_subtitles(words, ".")])
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _as_json(words: Sequence[WordTimestamp]) -> str:
    rows = [
        {
            "word": timestamp.word.text,
            "start_s": round(timestamp.start_sample / SAMPLE_RATE_HZ, 3),
            "end_s": None if end is None else round(end / SAMPLE_RATE_HZ, 3),
            "char_start": timestamp.word.char_start,
            "char_end": timestamp.word.char_end,
            "exact": timestamp.is_exact,
            "confidence": round(timestamp.confidence, 3),
        }
        for timestamp in words
        for end in [timestamp.end_sample]
    ]
    return json.dumps({"words": rows}, ensure_ascii=False, indent=1) + "\n"


def _subtitles(words: Sequence[WordTimestamp], mark: str) -> list[str]:
    return [
        f"{_time(start_s, mark)} --> {_time(end_s, mark)}\n{text}\n"
        for start_s, end_s, text in _cues(words)
    ]


def _cues(words: Sequence[WordTimestamp]) -> Iterator[tuple[float, float, str]]:
    cue: list[WordTimestamp] = []
    for timestamp in words:
        if cue and _is_full([*cue, timestamp]):
            yield _cue(cue)
            cue = []
        cue.append(timestamp)
        if last_mark(timestamp.word.text) in SENTENCE_ENDS:
            yield _cue(cue)
            cue = []
    if cue:
        yield _cue(cue)


def _is_full(cue: Sequence[WordTimestamp]) -> bool:
    start_s, end_s, text = _cue(cue)
    return len(text) > _MAX_CUE_CHARS or end_s - start_s > _MAX_CUE_S


def _cue(words: Sequence[WordTimestamp]) -> tuple[float, float, str]:
    text = ""
    for previous, timestamp in zip([None, *words], words, strict=False):
        # Chinese and Japanese words follow each other directly; others have white space between.
        touches = previous is None or previous.word.char_end == timestamp.word.char_start
        text += timestamp.word.text if touches else f" {timestamp.word.text}"
    start_s = words[0].start_sample / SAMPLE_RATE_HZ
    end_sample = words[-1].end_sample
    last_start_s = words[-1].start_sample / SAMPLE_RATE_HZ
    end_s = last_start_s + _UNKNOWN_END_S if end_sample is None else end_sample / SAMPLE_RATE_HZ
    return start_s, end_s, " ".join(text.split())


def _time(seconds: float, decimal_mark: str) -> str:
    total_ms = round(seconds * 1000)
    minutes, ms = divmod(total_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{ms // 1000:02}{decimal_mark}{ms % 1000:03}"
