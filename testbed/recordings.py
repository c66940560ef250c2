"""Recordings of people with word times by forced alignment, a second truth beside synthetic voices.

`make recordings` installs two packages of Debian:

- `pocketsphinx-testdata`: a public-domain LibriVox reading, and commands under a BSD licence.
- `asterisk-core-sounds-en-wav`: telephone prompts by one professional speaker, Allison Smith, under
  CC-BY-SA-3.0. The package has no texts; they are in `asterisk_prompts.txt`.

The acoustic model of pocketsphinx (extra `bench`) aligns them. Its own error is measured on flite
by `own_errors_ms`. No recording is in the repository.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import soundfile
import soxr

from testbed.known_speech import KnownSpeech, pcm16
from testbed.missing import MissingPartError
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.text.words import split_words

FOLDER = Path("/usr/share/pocketsphinx/test/data")
PROMPTS_FOLDER = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
TELEPHONE_RATE_HZ = 8_000
_TRANSCRIPTIONS = {"librivox/transcription": "librivox", "cards/cards.transcription": "cards"}
"""Files of texts beside their recordings, and names for their speakers."""
_LINE = re.compile(r"<s>(?P<text>.*)</s>\s*\((?P<name>.*)\)")
_PROMPTS = Path(__file__).with_name("asterisk_prompts.txt")
_PROMPT = re.compile(r"^(?P<name>[^#:]+): (?P<text>.+)$", re.MULTILINE)
_ALIGNER_RATE_HZ = 16_000
_ALIGNER_FRAMES_PER_S = 100
_PRONUNCIATIONS = {
    "digium": "D IH JH IY AH M",
    "forevermore": "F ER EH V ER M AO R",
    "fullfeatured": "F UH L F IY CH ER D",
    "interasterisk": "IH N T ER AE S T ER IH S K",
    "ivr": "AY V IY AA R",
    "pbx": "P IY B IY EH K S",
    "prepend": "P R IY P EH N D",
    "prepending": "P R IY P EH N D IH NG",
    "rerecord": "R IY R IH K AO R D",
    "touchtone": "T AH CH T OW N",
    "undelete": "AH N D IH L IY T",
    "unmute": "AH N M Y UW T",
    "unmuted": "AH N M Y UW T IH D",
}
"""Words of the prompts that the aligner's dictionary lacks, without hyphens."""

Part = Literal["development", "test"]


class RecordingsMissingError(MissingPartError):
    """The recordings or pocketsphinx are not installed."""


def recordings(part: Part) -> list[KnownSpeech]:
    """The recordings of one part; the hash of a file's name assigns it to a part.

    Raises:
        RecordingsMissingError: the recordings or pocketsphinx are not installed.
    """
    if not FOLDER.exists():
        raise RecordingsMissingError(
            f"expected recordings in {FOLDER}, got no such folder; try make recordings"
        )
    spoken = (
        _recording(
            (FOLDER / path).with_name(f"{match['name']}.wav"), match["text"].strip(), speaker
        )
        for path, speaker in _TRANSCRIPTIONS.items()
        for match in _LINE.finditer((FOLDER / path).read_text())
        if part_of(match["name"]) == part
    )
    return [one for one in spoken if one is not None]


def telephone_prompts(part: Part) -> list[KnownSpeech]:
    """The prompts of one part; the hash of a prompt's name assigns it to a part.

    The parts share the speaker and many phrases, but no prompt.

    Raises:
        RecordingsMissingError: the recordings or pocketsphinx are not installed.
    """
    if not PROMPTS_FOLDER.exists():
        raise RecordingsMissingError(
            f"expected telephone prompts in {PROMPTS_FOLDER}, got no such folder; "
            "try make recordings"
        )
    spoken = (
        _recording(PROMPTS_FOLDER / f"{match['name']}.wav", match["text"], "Allison")
        for match in _PROMPT.finditer(_PROMPTS.read_text())
        if part_of(match["name"]) == part
    )
    return [one for one in spoken if one is not None]


def part_of(name: str) -> Part:
    """Assign a file to development or test."""
    return "test" if hashlib.sha256(name.encode()).digest()[0] % 2 else "development"


def own_errors_ms(contexts: Iterable[KnownSpeech], rate_hz: int = SAMPLE_RATE_HZ) -> list[float]:
    """Absolute errors of the forced alignment's word starts, where the truth is known.

    Args:
        contexts: speech with known word times.
        rate_hz: rate of the audio that is aligned; `TELEPHONE_RATE_HZ` measures telephone quality.
    """
    errors: list[float] = []
    for spoken in contexts:
        samples = np.frombuffer(spoken.pcm, "<i2").astype(np.float64)
        heard = soxr.resample(samples, SAMPLE_RATE_HZ, rate_hz)
        starts = _aligned(spoken.text, heard, rate_hz) or []
        pairs = zip(starts, spoken.words, strict=False)
        errors += (abs(start - row.start_sample) * 1000 / SAMPLE_RATE_HZ for start, row in pairs)
    return errors


def _recording(path: Path, text: str, speaker: str) -> KnownSpeech | None:
    samples, rate_hz = soundfile.read(path, dtype="int16")
    starts = _aligned(text, samples, rate_hz)
    if starts is None:
        return None
    words = (
        WordTimestamp(word, start, None, 1.0)
        for word, start in zip(split_words(text), starts, strict=True)
    )
    pcm = pcm16(soxr.resample(samples.astype(np.float64), rate_hz, SAMPLE_RATE_HZ))
    return KnownSpeech("en", speaker, text, pcm, tuple(words))


def _aligned(text: str, samples: Any, rate_hz: int) -> list[int] | None:
    """Starts of the words in samples at 24 kHz; None where the aligner fails."""
    decoder = _decoder()
    audio = pcm16(soxr.resample(samples.astype(np.float64), rate_hz, _ALIGNER_RATE_HZ))
    try:
        decoder.set_align_text(re.sub(r"[^a-z' ]", "", text.lower()))
    except RuntimeError:  # a word that is not in the dictionary
        return None
    decoder.start_utt()
    decoder.process_raw(audio, full_utt=True)
    decoder.end_utt()
    found = [piece for piece in decoder.seg() or () if piece.word[0] not in "<["]
    starts = [piece.start_frame * SAMPLE_RATE_HZ // _ALIGNER_FRAMES_PER_S for piece in found]
    return starts if len(starts) == len(split_words(text)) else None


@cache
def _decoder() -> Any:
    try:
        from pocketsphinx import Decoder
    except ImportError as error:
        message = "pocketsphinx is not installed: pip install -e .[bench]"
        raise RecordingsMissingError(message) from error
    decoder = Decoder(samprate=_ALIGNER_RATE_HZ, loglevel="FATAL")
    for word, phones in _PRONUNCIATIONS.items():
        decoder.add_word(word, phones, True)
    return decoder
