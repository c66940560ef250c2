"""Speech of a voice whose network predicts durations, and where another program hears its words."""

from collections.abc import Iterable

import numpy as np
import soxr
from pocketsphinx import Config, Decoder

from voiceagent_tts.audio.pcm import float_to_pcm, pcm_to_float
from voiceagent_tts.core import SAMPLE_RATE_HZ, Segment, WordTimestamp
from voiceagent_tts.phonemes.reading import LoadedVoice
from voiceagent_tts.phonemes.speech import Speech
from voiceagent_tts.text.pieces import split_pieces


def speech(voice: LoadedVoice, text: str, *, speed: float = 1.0, trims_lead: bool = True) -> Speech:
    """The speech of a text that is one piece."""
    (piece,) = split_pieces(Segment(text, 0))
    ((phonemes, words),) = voice.read(piece)
    noise = np.random.default_rng(0)
    return Speech(voice.network, phonemes, words, speed=speed, noise=noise, trims_lead=trims_lead)


def all_of(speech: Speech) -> tuple[bytes, tuple[WordTimestamp, ...], list[int]]:
    """Its PCM, words, and the samples of each part."""
    parts = []
    while part := speech.next_part(has_pause=False):
        parts.append(part)
    return b"".join(parts), speech.words, [len(part) // 2 for part in parts]


def errors_ms(voice: LoadedVoice, texts: Iterable[str]) -> tuple[list[float], list[float]]:
    """How much later the voice has the starts and ends of its words than pocketsphinx.

    That program knows the words, and hears the audio.
    """
    decoder = Decoder(Config(lm=None, loglevel="FATAL"))
    starts, ends = list[float](), list[float]()
    for text in texts:
        pcm, words, _ = all_of(speech(voice, text))
        for word, (start_ms, end_ms) in zip(words, _aligned(decoder, text, pcm), strict=True):
            assert word.end_sample is not None
            starts.append(word.start_sample / 24 - start_ms)
            ends.append(word.end_sample / 24 - end_ms)
    return starts, ends


def _aligned(decoder: Decoder, text: str, pcm: bytes) -> list[tuple[float, float]]:
    """Start and end of each word in milliseconds."""
    silence = np.zeros(SAMPLE_RATE_HZ // 10, np.float32)
    audio = np.concatenate((silence, pcm_to_float(pcm), silence, silence))
    decoder.set_align_text(text)
    decoder.start_utt()
    decoder.process_raw(float_to_pcm(soxr.resample(audio, SAMPLE_RATE_HZ, 16_000)), full_utt=True)
    decoder.end_utt()
    found = [part for part in decoder.seg() if part.word[0].isalpha()]
    return [(part.start_frame * 10 - 100, part.end_frame * 10 - 90) for part in found]
