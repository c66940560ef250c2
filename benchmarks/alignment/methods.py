"""Sources of word times: the product's aligners, and a simulated one."""

from random import Random

from benchmarks.alignment.cuts import Method
from benchmarks.alignment.measure import CpuTimer, timed_session
from benchmarks.alignment.playback import Playback, play
from testbed.known_speech import KnownSpeech
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import WordTimestamp, ms_to_samples
from voiceagent_tts.word_times.aligners import VoiceLevels

_FORCED_NOISE_MS = 25.0
"""With rounding to 80 ms this gives the published 32.4 ms of Qwen3-ForcedAligner-0.6B on human
labels.
Source: arXiv 2601.21337, table 9."""
_FORCED_STEP_SAMPLES = ms_to_samples(80)


def online(timer: CpuTimer | None = None) -> Method:
    """The online aligner; at first it knows no voice.

    Args:
        timer: counts the aligner's CPU time.
    """
    aligner, levels = OnlineAligner(), VoiceLevels()

    def play_online(spoken: KnownSpeech, rtf: float) -> Playback:
        session = aligner.open(spoken.language, spoken.speaker)
        timed = session if timer is None else timed_session(session, timer)
        return play(spoken, rtf, timed, levels=levels)

    return play_online


def forced(seed: int) -> Method:
    """The forced aligner, and estimates before its answer."""
    random = Random(seed)
    return lambda spoken, rtf: play(spoken, rtf, None, forced_times(spoken, random))


def hybrid(seed: int) -> Method:
    """Both aligners."""
    random, aligner, levels = Random(seed), OnlineAligner(), VoiceLevels()

    def play_both(spoken: KnownSpeech, rtf: float) -> Playback:
        session = aligner.open(spoken.language, spoken.speaker)
        return play(spoken, rtf, session, forced_times(spoken, random), levels)

    return play_both


def estimates(spoken: KnownSpeech, rtf: float) -> Playback:
    """The product without aligners."""
    return play(spoken, rtf, None)


def forced_times(spoken: KnownSpeech, random: Random) -> list[WordTimestamp]:
    """Times of a forced aligner of published accuracy: the truth with noise, rounded."""
    times: list[WordTimestamp] = []
    last = 0
    for word in spoken.words:
        magnitude_ms = random.expovariate(1 / _FORCED_NOISE_MS)
        blurred = word.start_sample + random.choice((-1, 1)) * ms_to_samples(magnitude_ms)
        rounded = round(blurred / _FORCED_STEP_SAMPLES) * _FORCED_STEP_SAMPLES
        last = min(max(rounded, last), spoken.samples)
        times.append(WordTimestamp(word.word, last, None, confidence=1.0))
    return times
