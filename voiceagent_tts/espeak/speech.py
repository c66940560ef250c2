"""One piece of text to audio at 24 kHz and the times of its words, from its first sample."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import soxr

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.audio.pcm import float_to_pcm
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.espeak.catalogue import EspeakVoice
from voiceagent_tts.espeak.japanese import to_kana
from voiceagent_tts.espeak.library import ESPEAK_RATE_HZ, EspeakLibrary, EventType, SpeechEvent
from voiceagent_tts.espeak.word_times import WordSpan, time_words
from voiceagent_tts.seam.segment_engine import unspoken
from voiceagent_tts.text.pieces import TextPiece
from voiceagent_tts.text.readings import Said

_GUESS_CONFIDENCE = 0.9
"""Of a word inside a group of which espeak reports the beginning alone. 95 % of them lie within
129 ms (89 words)."""
_SILENCE_LEVEL = 64  # of 32,768: -54 dB
_KEPT_LEAD_SAMPLES = ms_to_samples(2)  # keeps the attack of the first sound


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a piece is spoken.

    Attributes:
        words_per_minute: 80 to 450.
        has_end_pause: whether the pause after its last clause is included.
        trims_lead: whether silence before its first sound is removed.
    """

    voice: EspeakVoice
    words_per_minute: int
    has_end_pause: bool
    trims_lead: bool


@dataclass(frozen=True, slots=True)
class Phoneme:
    """One of espeak's phonemes, or a pause.

    Attributes:
        name: espeak's name of it; that of a pause begins with "_".
        start_sample: where it begins at 24 kHz, from the first sample of the speech.
        end_sample: where the next one begins, or the speech ends.
    """

    name: str
    start_sample: int
    end_sample: int

    @property
    def is_pause(self) -> bool:
        """Whether silence begins here."""
        return self.name.startswith("_")


@dataclass(frozen=True, slots=True)
class Speech:
    """What was spoken.

    Attributes:
        pcm: PCM16 at 24 kHz.
        words: every word of the piece, with its times from the first sample of `pcm`.
        phonemes: all phonemes and pauses, in order.
    """

    pcm: bytes
    words: tuple[WordTimestamp, ...]
    phonemes: tuple[Phoneme, ...] = ()


def speak(
    library: EspeakLibrary, piece: TextPiece, delivery: Delivery, continues: Callable[[], bool]
) -> Speech | None:
    """Speak a piece as a whole; if espeak pronounces nothing of it, the speech has no samples.

    `continues` is called after every 200 ms of audio, and returns False to stop the speech.

    Returns:
        The speech, or None if it was stopped.

    Raises:
        EngineError: espeak could not speak it.
    """
    chunks: list[npt.NDArray[np.int16]] = []
    events: list[SpeechEvent] = []

    def on_chunk(samples: npt.NDArray[np.int16], new_events: list[SpeechEvent]) -> bool:
        chunks.append(samples)
        events.extend(new_events)
        return continues()

    voice = delivery.voice
    spoken, guessed = _as_read(piece.said, voice, library)
    is_complete = library.synthesize(
        spoken.text,
        voice.identifier,
        delivery.words_per_minute,
        voice.pitch,
        on_chunk,
        has_end_pause=delivery.has_end_pause,
        has_phonemes=bool(spoken.ipa),
    )
    if not is_complete:
        return None
    if not any(event.kind is EventType.PHONEME and not event.is_pause for event in events):
        return Speech(b"", unspoken(piece.words))
    spans = time_words(
        piece.words,
        spoken,
        events,
        lambda text: len(library.phonemes(text, voice.identifier)),
        guessed,
    )
    pcm = _at_24_khz(np.concatenate(chunks))
    lead = _removable_lead(pcm) if delivery.trims_lead else 0
    pcm = pcm[lead * BYTES_PER_SAMPLE :]
    end = len(pcm) // BYTES_PER_SAMPLE
    return Speech(
        pcm,
        tuple(_timestamp(span, lead, end) for span in spans),
        tuple(_phonemes(events, lead, end)),
    )


def can_say_ipa(piece: TextPiece, voice: EspeakVoice, library: EspeakLibrary) -> bool:
    """Whether the voice has the sounds of all pronunciations in IPA; used as `speak` uses them."""
    if not piece.said.ipa:
        return True
    return not voice.reads_kana_only and all(
        library.ipa_table(voice.identifier).names_of(ipa) for _, ipa in piece.said.ipa
    )


def _as_read(
    spoken: Said, voice: EspeakVoice, library: EspeakLibrary
) -> tuple[Said, frozenset[int]]:
    """The text as the voice reads it: kanji as kana, and IPA as espeak's names of phonemes.

    IPA is left out where the voice lacks one of its sounds, and in Japanese; its letters stay.
    Returned with it are the offsets whose place is an estimate.
    """
    if voice.reads_kana_only:
        return to_kana(replace(spoken, ipa=()))
    text, offsets, at = "", list[int](), 0
    replaced: list[tuple[range, str]] = []
    for place, ipa in spoken.ipa:
        names = library.ipa_table(voice.identifier).names_of(ipa)
        if names is None:
            continue
        text += spoken.text[at : place.start]
        offsets += spoken.offsets[at : place.start]
        replaced.append((range(len(text), len(text) + len(names)), ipa))
        text += names
        offsets += [spoken.offsets[place.start]] * len(names)
        at = place.stop
    read = Said(text + spoken.text[at:], (*offsets, *spoken.offsets[at:]), tuple(replaced))
    return read, frozenset()


def _at_24_khz(samples: npt.NDArray[np.int16]) -> bytes:
    """Resample a whole piece at once, so that there are no clicks inside it."""
    floats = samples.astype(np.float32) / np.float32(1 << 15)
    return float_to_pcm(soxr.resample(floats, ESPEAK_RATE_HZ, SAMPLE_RATE_HZ, quality="HQ"))


def _removable_lead(pcm: bytes) -> int:
    return max(0, leading_silence_samples(pcm, _SILENCE_LEVEL) - _KEPT_LEAD_SAMPLES)


def _phonemes(events: Iterable[SpeechEvent], lead: int, end: int) -> Iterator[Phoneme]:
    found = [event for event in events if event.kind is EventType.PHONEME]
    borders = [*(_place(event.sample, lead, end) for event in found), end]
    for event, (first, after) in zip(found, pairwise(borders), strict=True):
        yield Phoneme(event.phoneme, first, after)


def _timestamp(span: WordSpan, lead: int, end: int) -> WordTimestamp:
    return WordTimestamp(
        span.word,
        _place(span.start, lead, end),
        _place(span.end, lead, end),
        1.0 if span.is_exact else _GUESS_CONFIDENCE,
    )


def _place(sample: int, lead: int, end: int) -> int:
    """A `sample` at espeak's rate on the 24 kHz clock of the trimmed audio, which ends at `end`."""
    return min(max(round(sample * SAMPLE_RATE_HZ / ESPEAK_RATE_HZ) - lead, 0), end)
