"""The conditions under which the online aligner is measured: noise, pauses, breaths, rooms, people.

A condition turns clean speech into what a clone of an ordinary recording, or a person, sounds like.
Levels are in dB below the voice's loudest 20 ms (`testbed.disturbed_speech`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from random import Random

import numpy as np
import soxr

from benchmarks.alignment.speech import SpeechSet
from testbed.disturbed_speech import (
    Noise,
    with_breaths,
    with_clicks,
    with_gain,
    with_noise,
)
from testbed.hibari_driving import natural
from testbed.known_speech import KnownSpeech, pcm16, with_lead, with_pauses, with_reverb
from testbed.kokoro import kokoro_files, kokoro_voices
from testbed.missing import MissingPartError
from testbed.noise import babble, pink
from testbed.recordings import RecordingsMissingError, recordings, telephone_prompts
from testbed.sentences import OTHERS
from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.hibari.published import is_installed
from voiceagent_tts.plugins.bench.texts import choose_texts

NOISE_DB = (45, 40, 30, 20)
_ROOM_DB = 30
"""Noise in the conditions that have another disturbance too."""
_BREATH_DB = 25
_PAUSES_MS = (2_000, 700, 350)
_FALSE_STARTS = ("Actually the,", "What I, I think,", "Let me see,", "So we could,")

KOKORO_ENGLISH = (
    "af_heart", "am_michael", "bf_emma", "bm_george", "af_bella", "am_fenrir", "af_nicole",
    "am_puck", "bf_isabella", "bm_fable", "af_sarah", "am_onyx",
)  # fmt: skip
KOKORO_OTHERS = {
    "es": ("ef_dora", "em_alex"),
    "fr": ("ff_siwis",),
    "it": ("if_sara", "im_nicola"),
    "pt": ("pf_dora", "pm_alex", "pm_santa"),
}
"""Voices by which no parameter was chosen. Hindi, which Kokoro speaks too, is not aligned."""

Disturb = Callable[[KnownSpeech, int], KnownSpeech]
"""Disturbs one context; the number is its seed."""


def conditions(speech: SpeechSet) -> dict[str, Callable[[], list[KnownSpeech]]]:
    """What makes the contexts of each condition, by its name; raises as `SpeechSet.spoken`."""
    clean = speech.spoken()
    named: dict[str, Callable[[], list[KnownSpeech]]] = {"clean": lambda: clean}
    for name, disturb in _disturbances().items():
        named[name] = partial(_disturbed, clean, disturb)
    for name, unwritten in _HESITATIONS.items():
        named[name] = partial(_hesitating, speech, unwritten)
    named["numbers"] = replace(speech, texts=speech.numbers).spoken
    named["30 % faster"] = partial(speech.spoken, 1.3)
    named["30 % slower"] = partial(speech.spoken, 0.7)
    for factor in (1.18, 0.85):
        resample = partial(_resampled, factor=factor)
        named[f"voices {factor:.0%} as high"] = partial(_disturbed, clean, resample)
    natural_voices = _natural(speech) | _kokoro(speech)
    return named | natural_voices | _people(speech) | _telephone_prompts(speech)


def _natural(speech: SpeechSet) -> dict[str, Callable[[], list[KnownSpeech]]]:
    """Conditions of hibari, by which no parameter was chosen; its times lag or lead by 30 ms."""
    if not is_installed():
        return {}
    return {
        "natural voice": lambda: [natural(text) for text in speech.texts],
        "natural voice, numbers": lambda: [natural(text) for text in speech.numbers],
        "natural voice, 30 % faster": lambda: [natural(text, 1.3) for text in speech.texts],
    }


def _kokoro(speech: SpeechSet) -> dict[str, Callable[[], list[KnownSpeech]]]:
    """Conditions of Kokoro where `make kokoro` was run: its voices take turns with the texts."""
    try:
        kokoro_files()
    except MissingPartError:
        return {}
    named = {"Kokoro, 12 voices": _by_turns(KOKORO_ENGLISH, speech.texts)}
    for language, voices in KOKORO_OTHERS.items():
        named[f"Kokoro, {language}"] = _by_turns(voices, other_texts(language))
    return named


def other_texts(language: str) -> list[str]:
    """Sentences in a language other than English by which no parameter was chosen."""
    longer = choose_texts([language], ["short", "menu", "blurb"])
    return [*OTHERS[language], *(text.text for text in longer)]


def _by_turns(names: Sequence[str], texts: Sequence[str]) -> Callable[[], list[KnownSpeech]]:
    return lambda: [
        natural(text, voice=kokoro_voices()[name])
        for text, name in zip(texts, cycle(names), strict=False)
    ]


def _people(speech: SpeechSet) -> dict[str, Callable[[], list[KnownSpeech]]]:
    """Conditions of recordings, where they are installed."""
    try:
        people = recordings(speech.people)
    except RecordingsMissingError:
        return {}
    disturb = partial(_in_noise_with_pauses, noise=pink, below_db=40)
    long = [spoken for spoken in people if len(spoken.words) > len(_PAUSES_MS)]
    return {
        "people": lambda: people,
        "people, pink -40 dB, pauses": partial(_disturbed, long, disturb),
    }


def _telephone_prompts(speech: SpeechSet) -> dict[str, Callable[[], list[KnownSpeech]]]:
    """Conditions of one professional speaker in telephone quality, where they are installed."""
    try:
        prompts = telephone_prompts(speech.people)
    except RecordingsMissingError:
        return {}
    disturbances: dict[str, Disturb] = {
        "pink -40 dB, pauses": partial(_in_noise_with_pauses, noise=pink, below_db=40),
        "pink -20 dB": partial(with_noise, noise=pink, below_db=20),
        "babble -20 dB": partial(with_noise, noise=babble, below_db=20),
    }
    return {
        "telephone prompts": lambda: prompts,
        **{
            f"telephone prompts, {name}": partial(_disturbed, prompts, disturb)
            for name, disturb in disturbances.items()
        },
    }


def _disturbed(clean: list[KnownSpeech], disturb: Disturb) -> list[KnownSpeech]:
    return [disturb(spoken, seed) for seed, spoken in enumerate(clean)]


def _disturbances() -> dict[str, Disturb]:
    found: dict[str, Disturb] = {
        "pauses": _with_three_pauses,
        "500 ms of silent lead": lambda spoken, _: with_lead(spoken, 500),
        "reverb": lambda spoken, _: with_reverb(spoken),
    }
    for name, noise in (("pink", pink), ("babble", babble)):
        for below_db in NOISE_DB:
            options = {"noise": noise, "below_db": below_db}
            found[f"{name} -{below_db} dB"] = partial(with_noise, **options)
            found[f"{name} -{below_db} dB, pauses"] = partial(_in_noise_with_pauses, **options)
    return found | {
        "breaths": _breathing,
        "lip clicks": partial(_between_words, add=with_clicks),
        "300 ms of noisy lead": partial(_noisy_lead, lead_ms=300),
        "1 s of noisy lead": partial(_noisy_lead, lead_ms=1_000),
        "breaths, pink -40 dB": lambda spoken, seed: with_noise(
            _breathing(spoken, seed), seed, pink, 40
        ),
        "reverb, pink -30 dB, pauses": lambda spoken, seed: with_noise(
            with_reverb(_with_three_pauses(spoken, seed)), seed, pink, _ROOM_DB
        ),
        "quiet speaker, pink -30 dB, pauses": lambda spoken, seed: with_gain(
            _in_noise_with_pauses(spoken, seed, pink, _ROOM_DB), -25
        ),
        "level falls by 15 dB": _falling_level,
    }


def _noisy_lead(spoken: KnownSpeech, seed: int, lead_ms: int) -> KnownSpeech:
    return with_noise(with_lead(spoken, lead_ms), seed, pink, _ROOM_DB)


def _in_noise_with_pauses(
    spoken: KnownSpeech, seed: int, noise: Noise, below_db: float
) -> KnownSpeech:
    return with_noise(_with_three_pauses(spoken, seed), seed, noise, below_db)


def _with_three_pauses(spoken: KnownSpeech, seed: int) -> KnownSpeech:
    places = Random(seed).sample(range(1, len(spoken.words)), len(_PAUSES_MS))
    return with_pauses(spoken, list(zip(places, _PAUSES_MS, strict=True)))


def _between_words(
    spoken: KnownSpeech, seed: int, add: Callable[[KnownSpeech, list[int], float, int], KnownSpeech]
) -> KnownSpeech:
    """Add sounds before the first word and two others."""
    words = [0, *Random(seed).sample(range(1, len(spoken.words)), 2)]
    return add(spoken, words, _BREATH_DB, seed)


_breathing = partial(_between_words, add=with_breaths)


def _falling_level(spoken: KnownSpeech, seed: int) -> KnownSpeech:
    """A speaker who moves away: every other context is 15 dB quieter, the noise is not."""
    paused = _with_three_pauses(spoken, seed)
    if seed % 2 == 0:
        return with_noise(paused, seed, pink, 45)
    return with_noise(with_gain(paused, -15), seed, pink, 30)


# What the text lacks


def _filler(words: list[str], random: Random) -> Mapping[int, str]:
    return dict.fromkeys(random.sample(range(1, len(words)), 2), "um,")


def _repetition(words: list[str], random: Random) -> Mapping[int, str]:
    """Two words are said twice; a listener has heard them the first time."""
    place = random.randrange(2, len(words))
    return {place: f"{words[place - 2]} {words[place - 1].rstrip(',')},"}


def _false_start(words: list[str], random: Random) -> Mapping[int, str]:
    return {random.choice((0, len(words) // 2)): random.choice(_FALSE_STARTS)}


_HESITATIONS = {"um": _filler, "repeated words": _repetition, "false start": _false_start}


def _hesitating(
    speech: SpeechSet, unwritten: Callable[[list[str], Random], Mapping[int, str]]
) -> list[KnownSpeech]:
    random = Random(1)
    return speech.spoken(unwritten=lambda words: unwritten(words, random))


# Other voices


def _resampled(spoken: KnownSpeech, _: int, factor: float) -> KnownSpeech:
    """A voice that was never tuned on: another pitch and vocal tract, at another pace."""
    samples = np.frombuffer(spoken.pcm, "<i2").astype(np.float64)
    pcm = pcm16(soxr.resample(samples, factor, 1.0))
    words = tuple(_scaled(word, 1 / factor) for word in spoken.words)
    return replace(spoken, speaker=f"{spoken.speaker} x {factor}", pcm=pcm, words=words)


def _scaled(stamp: WordTimestamp, factor: float) -> WordTimestamp:
    end = None if stamp.end_sample is None else round(stamp.end_sample * factor)
    return replace(stamp, start_sample=round(stamp.start_sample * factor), end_sample=end)
