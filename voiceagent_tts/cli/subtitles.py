"""Word times as files: JSON for programs, SubRip and WebVTT for players."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import InvalidRequestError

_SUFFIXES = (".json", ".srt", ".vtt")
_MAX_CUE_CHARS = 42  # one line of a television subtitle
_MAX_CUE_S = 6.0
_UNKNOWN_END_S = 0.3
_SENTENCE_ENDS = ".!?。！？"


def check_words_path(path: Path | None) -> None:
    """Refuse a name whose format is unknown, before anything is spoken.

    Raises:
        InvalidRequestError: the suffix is none of ours.
    """
    if path is not None and path.suffix.lower() not in _SUFFIXES:
        raise InvalidRequestError(
            f"--words: expected a name that ends in {', '.join(_SUFFIXES)}; got {path.name}"
        )


def write_words(path: Path, words: Sequence[WordTimestamp]) -> None:
    """Write `words` in the format that the suffix of `path` names."""
    match path.suffix.lower():
        case ".json":
            text = _as_json(words)
        case ".srt":
            text = _as_srt(words)
        case _:
            text = _as_vtt(words)
    path.write_text(text, encoding="utf-8")


def _as_json(words: Sequence[WordTimestamp]) -> str:
    rows = [
        {
            "word": timestamp.word.text,
            "start_s": round(timestamp.start_sample / SAMPLE_RATE_HZ, 3),
            "end_s": None
            if timestamp.end_sample is None
            else round(timestamp.end_sample / SAMPLE_RATE_HZ, 3),
            "char_start": timestamp.word.char_start,
            "char_end": timestamp.word.char_end,
            "exact": timestamp.is_exact,
        }
        for timestamp in words
    ]
    return json.dumps({"words": rows}, ensure_ascii=False, indent=1) + "\n"


def _as_srt(words: Sequence[WordTimestamp]) -> str:
    blocks = [
        f"{number}\n{_time(start_s, ',')} --> {_time(end_s, ',')}\n{text}\n"
        for number, (start_s, end_s, text) in enumerate(_cues(words), start=1)
    ]
    return "\n".join(blocks)


def _as_vtt(words: Sequence[WordTimestamp]) -> str:
    blocks = [
        f"{_time(start_s, '.')} --> {_time(end_s, '.')}\n{text}\n"
        for start_s, end_s, text in _cues(words)
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def _cues(words: Sequence[WordTimestamp]) -> Iterator[tuple[float, float, str]]:
    """(start, end, text) of lines that a reader can follow."""
    cue: list[WordTimestamp] = []
    for timestamp in words:
        if cue and _is_full([*cue, timestamp]):
            yield _cue(cue)
            cue = []
        cue.append(timestamp)
        if timestamp.word.text[-1] in _SENTENCE_ENDS:
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
        # Words of Chinese and Japanese touch; others had white space between them.
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
