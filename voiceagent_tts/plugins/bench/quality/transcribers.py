"""Programs that write down what they hear: an endpoint, faster-whisper, or pocketsphinx.

    http://HOST[/v1][{"model": "..."}]   any server with OpenAI's `/v1/audio/transcriptions`
    faster-whisper:MODEL                 a folder or name of a model, with the package installed
    pocketsphinx                         English only, with many errors of its own: for trials

Figures of papers need the recogniser of the paper: Whisper large v3 for English.
"""

import importlib
import json
from collections.abc import Callable

import soxr

from voiceagent_tts.audio.pcm import float_to_pcm
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.recordings.recogniser import Recogniser, Samples

Transcribe = Callable[[Samples, str], str]
"""[S] float32 at 24 kHz and a language code -> what is heard.

Raises:
    EngineError: nothing can be heard, because the recogniser failed.
    InvalidRequestError: the recogniser does not know the language.
"""

RECOGNISER_RATE_HZ = 16_000


def open_transcriber(address: str, key: str = "") -> Transcribe:
    """Make the transcriber of an address; a model is loaded now.

    Args:
        address: as this module describes.
        key: API key of an endpoint.

    Raises:
        InvalidRequestError: the address is of no such kind, or a package or model is missing.
    """
    kind, _, rest = address.partition(":")
    try:
        if kind in ("http", "https"):
            return _endpoint(address, key)
        if kind == "faster-whisper" and rest:
            return _faster_whisper(rest)
        if kind == "pocketsphinx" and not rest:
            return _pocketsphinx()
    except ModuleNotFoundError as error:
        raise InvalidRequestError(f"the package {error.name!r} is missing: install it") from error
    raise _invalid("http(s)://HOST[{JSON}], faster-whisper:MODEL or pocketsphinx", address)


def _endpoint(address: str, key: str) -> Transcribe:
    url, brace, rest = address.partition("{")
    try:
        arguments = json.loads(brace + rest or "{}")
    except json.JSONDecodeError as error:
        raise _invalid("a JSON object after the address", address) from error
    url = url.strip().rstrip("/").removesuffix("/v1")
    return Recogniser(url, str(arguments.get("model", "whisper-1")), key).transcribe


def _faster_whisper(name: str) -> Transcribe:
    whisper = importlib.import_module("faster_whisper")
    try:
        model = whisper.WhisperModel(name, device="auto", compute_type="default")
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidRequestError(
            f"faster-whisper: expected a model's folder or name, got {name!r}: {error}"
        ) from error

    def transcribe(samples: Samples, language: str) -> str:
        at_16_khz = soxr.resample(samples, SAMPLE_RATE_HZ, RECOGNISER_RATE_HZ)
        segments, _ = model.transcribe(at_16_khz, language=language, beam_size=5)
        return " ".join(segment.text.strip() for segment in segments)

    return transcribe


def _pocketsphinx() -> Transcribe:
    from pocketsphinx import Decoder

    decoder = Decoder(samprate=RECOGNISER_RATE_HZ, loglevel="FATAL")

    def transcribe(samples: Samples, language: str) -> str:
        if language != "en":
            raise _invalid("English, which is all that pocketsphinx has", language)
        pcm = float_to_pcm(soxr.resample(samples, SAMPLE_RATE_HZ, RECOGNISER_RATE_HZ))
        decoder.start_utt()
        decoder.process_raw(pcm, full_utt=True)
        decoder.end_utt()
        hypothesis = decoder.hyp()
        return hypothesis.hypstr if hypothesis is not None else ""

    return transcribe


def _invalid(expected: str, got: str) -> InvalidRequestError:
    return InvalidRequestError(f"transcriber: expected {expected}; got {got!r}")
