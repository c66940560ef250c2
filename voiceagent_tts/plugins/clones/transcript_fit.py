"""Whether a recording says its transcript: the phones of both, compared as a whole.

The embedded voice reads the transcript, and the phones that it reports are followed through the
recording by the cheapest path that says all of them, as in the online aligner. The same phones in
an order of no sense say what a wrong text of this length would cost here: with the voice, the noise
and the room of the recording. This module knows no voices and no files.
"""

from dataclasses import dataclass

import numpy as np

from voiceagent_tts.aligner.online.espeak_reference import ReferenceVoice, frames_of
from voiceagent_tts.aligner.online.features import Booleans, Floats, Frames, FrameStream, Integers
from voiceagent_tts.aligner.online.phone_model import phone_model
from voiceagent_tts.aligner.online.phones import ESPEAK_PHONES
from voiceagent_tts.aligner.online.voice_profile import UsualSpectrum
from voiceagent_tts.text.words import split_words

_STAY_COST = _SKIP_COST = np.float32(0.7)
"""Transition costs of an audio frame that repeats a reference frame, and of leaving one out. Lower
than those of the aligner: a speaker's pace is not known before."""
_PAUSE_ENTRY_COST, _PAUSE_COST = np.float32(1.0), np.float32(0.3)
"""Transition cost into a pause, and cost of a frame in it in addition to that of silence."""
_SPEECH_SILENCE_COST = np.float32(1.0)
"""Cost of silence above which a frame is taken for speech."""
_LIKELY_COST, _LIKELY_GAIN = 3.2, 0.6
"""A text that costs more in a frame, and gains less over a text of no sense, is not what was said.

Of 153 recordings of people, none costs more than 3.19 with its own text, and of other texts 1 in
100 costs less than 3.2 (benchmarks/LOG.md). The gain protects a voice or an accent
that the network hears badly: its own text costs more, and still far less than one of no sense.
"""
_MIN_SPEECH_FRAMES = 150
"""Fewer say too little: 1.5 s."""
_UNREACHABLE = np.float32(1e9)


@dataclass(frozen=True, slots=True)
class TranscriptFit:
    """How well the phones of a text explain a recording.

    Attributes:
        cost: of the text, mean of all frames.
        gain: how much less that is than for the same phones in an order of no sense.
    """

    cost: float
    gain: float

    @property
    def is_likely(self) -> bool:
        """Whether the text may be what was said."""
        return self.cost <= _LIKELY_COST or self.gain >= _LIKELY_GAIN


def transcript_fit(pcm: bytes, text: str, language: str) -> TranscriptFit | None:
    """Compare a recording with its transcript.

    Returns:
        None if there is too little speech, or too few sounds in the text, for an answer.

    Raises:
        EngineError: espeak-ng cannot be loaded, or could not speak the text.
        InvalidRequestError: espeak-ng does not speak the language.
    """
    voice = ReferenceVoice()
    espeak_voice = voice.voice_for(language)
    words = split_words(text)
    phone_costs = _phone_costs(pcm)
    speech_frames = int((phone_costs[:, 0] > _SPEECH_SILENCE_COST).sum())
    if speech_frames < _MIN_SPEECH_FRAMES or not words:
        return None
    speech = voice.synthesize(words, espeak_voice, 1.0)
    sounds, centres = frames_of(speech, is_english=espeak_voice.is_english)
    # By espeak alone: what a sound may be for other voices fits a wrong text better, too.
    phones = np.array(ESPEAK_PHONES)[sounds]
    if len(phones) < _MIN_SPEECH_FRAMES // 4:
        return None
    starts = np.searchsorted(centres, [time.start_sample for time in speech.words])
    paced = np.linspace(0, len(phones), speech_frames, endpoint=False).astype(np.int64)
    borders = np.unique(np.searchsorted(paced, starts[starts < len(phones)]))
    sayings = _sayings(phones[paced], borders)
    said, *others = _costs(phone_costs, *map(np.stack, zip(*sayings, strict=True)))
    return TranscriptFit(said, min(others) - said)


def _phone_costs(pcm: bytes) -> Floats:
    """[N, SOUNDS], how badly each sound fits each frame, given the whole recording."""
    stream, spectrum = FrameStream(), UsualSpectrum()
    parts: list[Frames] = [*stream.push(pcm), stream.flush()]
    for frames in parts:
        if len(frames):
            spectrum = spectrum.including(frames.own_spectra)
    return np.concatenate([phone_model().costs(part.spectra, spectrum.mean) for part in parts])


def _sayings(phones: Integers, borders: Integers) -> list[tuple[Integers, Booleans]]:
    """The phones and where a pause may lie: as they are, backwards, and word by word backwards."""
    words = np.split(np.arange(len(phones)), borders)
    orders = np.arange(len(phones)), np.arange(len(phones))[::-1], np.concatenate(words[::-1])
    is_start = np.zeros(len(phones), np.bool_)
    is_start[borders[borders < len(phones)]] = True
    is_start[0] = True
    return [(phones[order], is_start[order]) for order in orders]


def _costs(phone_costs: Floats, phones: Integers, starts: Booleans) -> list[float]:
    """Mean cost of a frame on the cheapest path through all of some phones, for each saying.

    Args:
        phone_costs: [N, SOUNDS].
        phones: [K, L], of K sayings.
        starts: [K, L], whether a pause may lie before each of them.
    """
    sayings, length = phones.shape
    words = np.full((sayings, length), _UNREACHABLE, np.float32)
    pauses = np.full((sayings, length + 1), _UNREACHABLE, np.float32)
    pauses[:, 0] = 0.0
    entries = np.where(starts[:, 1:], _PAUSE_ENTRY_COST, _UNREACHABLE)
    for costs in phone_costs:
        best = np.minimum(words + _STAY_COST, pauses[:, :-1])
        np.minimum(best[:, 1:], words[:, :-1], out=best[:, 1:])
        np.minimum(best[:, 2:], words[:, :-2] + _SKIP_COST, out=best[:, 2:])
        np.minimum(pauses[:, 1:-1], words[:, :-1] + entries, out=pauses[:, 1:-1])
        np.minimum(pauses[:, -1], words[:, -1] + _PAUSE_ENTRY_COST, out=pauses[:, -1])
        words = best + costs[phones]
        pauses += costs[0] + _PAUSE_COST
    ends = np.minimum(words[:, -1], pauses[:, -1])
    return [float(end) / len(phone_costs) for end in ends]
