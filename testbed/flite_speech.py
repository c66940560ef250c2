"""Speak with flite's voices and exact word times: an independent English ground truth.

flite is another synthesizer (Debian: `apt-get install libflite1`, or `make flite`). Its C API keeps
the utterance from which the samples were generated, with the end of every segment and the token
that each belongs to. This module uses no aligner.

Source: flite 2.2, `flite.h`, `cst_item.h`, `cst_wave.h` for every call and structure layout.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.missing import MissingPartError

VOICES = ("kal16", "slt", "rms", "awb", "kal")
_TOKEN_OF_SEGMENT = b"R:SylStructure.parent.parent.R:Token.parent"
_DURATION_STRETCH = b"duration_stretch"
_SEED = 1

TimesT = TypeVar("TimesT")


class FliteMissingError(MissingPartError):
    """The library or one of its voices is not installed."""


class _Wave(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    ]


def speak(
    text: str, voice: str, stretch: float
) -> tuple[npt.NDArray[np.int16], int, list[tuple[float, float]]]:
    """Speak `text` with the times of its tokens: the same sound at every call.

    Args:
        text: English; white space separates the tokens that get times.
        voice: one of `VOICES`.
        stretch: factor on all durations.

    Returns:
        Samples, their rate in Hz, and (start, end) in seconds of every token with sound.

    Raises:
        FliteMissingError: flite is not installed.
    """
    return _spoken(text, voice, stretch, _token_times)


def speak_segments(
    text: str, voice: str, stretch: float
) -> tuple[npt.NDArray[np.int16], int, list[tuple[str, float, float]]]:
    """Speak `text` with the times of its phones; else as `speak`.

    Returns:
        Samples, their rate in Hz, and (name, start, end) of every phone and pause, in seconds.
    """
    return _spoken(text, voice, stretch, _segment_times)


def _spoken(
    text: str, voice: str, stretch: float, times_of: Callable[[Any, int], TimesT]
) -> tuple[npt.NDArray[np.int16], int, TimesT]:
    flite = _library()
    speaker = _voice(voice)
    flite.flite_feat_set_float(_features(speaker), _DURATION_STRETCH, stretch)
    # flite's noise comes from the C library's generator, whose state is that of the whole process.
    ctypes.CDLL(None).srand(_SEED)
    utterance = flite.flite_synth_text(text.encode(), speaker)
    try:
        wave = flite.utt_wave(utterance).contents
        samples = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).astype(np.int16)
        return samples, wave.sample_rate, times_of(flite, utterance)
    finally:
        flite.delete_utterance(utterance)


def _segments(flite: Any, utterance: int) -> Iterator[tuple[int, float, float]]:
    """Every segment with its start and end in seconds; segments are contiguous."""
    start = 0.0
    segment = flite.relation_head(flite.utt_relation(utterance, b"Segment"))
    while segment:
        end = flite.flite_ffeature_float(segment, b"end")
        yield segment, start, end
        start = end
        segment = flite.item_next(segment)


def _segment_times(flite: Any, utterance: int) -> list[tuple[str, float, float]]:
    return [
        (flite.flite_ffeature_string(segment, b"name").decode(), start, end)
        for segment, start, end in _segments(flite, utterance)
    ]


def _token_times(flite: Any, utterance: int) -> list[tuple[float, float]]:
    """Return the times of the tokens; the segments of a token are adjacent."""
    times: list[tuple[float, float]] = []
    current = 0
    for segment, start, end in _segments(flite, utterance):
        item = flite.flite_path_to_item(segment, _TOKEN_OF_SEGMENT)
        # Items of one token in several relations share their contents, the first field.
        token = ctypes.c_void_p.from_address(item).value or 0 if item else 0
        if token and token == current:
            times[-1] = (times[-1][0], end)
        elif token:
            times.append((start, end))
        current = token
    return times


@cache
def _voice(name: str) -> int:
    path = f"libflite_cmu_us_{name}.so.1"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise FliteMissingError(
            f"flite's voice {name} is not installed: {path} is missing; try make flite"
        ) from error
    register = getattr(library, f"register_cmu_us_{name}")
    register.restype = ctypes.c_void_p
    register.argtypes = [ctypes.c_char_p]
    return register(None)


def _features(voice: int) -> int:
    """Return the voice's features: the second field of `cst_voice`, after its name."""
    return ctypes.c_void_p.from_address(voice + ctypes.sizeof(ctypes.c_void_p)).value or 0


@cache
def _library() -> Any:
    try:
        flite = ctypes.CDLL("libflite.so.1", mode=ctypes.RTLD_GLOBAL)
        for name in ("libflite_usenglish.so.1", "libflite_cmulex.so.1"):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise FliteMissingError("flite is not installed; try make flite") from error
    pointer = ctypes.c_void_p
    _declare(flite.flite_synth_text, pointer, ctypes.c_char_p, pointer)
    _declare(flite.utt_wave, ctypes.POINTER(_Wave), pointer)
    _declare(flite.utt_relation, pointer, pointer, ctypes.c_char_p)
    _declare(flite.relation_head, pointer, pointer)
    _declare(flite.item_next, pointer, pointer)
    _declare(flite.flite_ffeature_float, ctypes.c_float, pointer, ctypes.c_char_p)
    _declare(flite.flite_ffeature_string, ctypes.c_char_p, pointer, ctypes.c_char_p)
    _declare(flite.flite_path_to_item, pointer, pointer, ctypes.c_char_p)
    _declare(flite.flite_feat_set_float, None, pointer, ctypes.c_char_p, ctypes.c_float)
    _declare(flite.delete_utterance, None, pointer)
    flite.flite_init()
    return flite


def _declare(function: Any, result: Any, *arguments: Any) -> None:
    function.restype = result
    function.argtypes = arguments
