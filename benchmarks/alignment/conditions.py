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

from benchmarks.alignment.speech import ESPEAK_VOICES, SpeechSet
from testbed.disturbed_speech import (
    Noise,
    with_breaths,
    with_clicks,
    with_gain,
    with_noise,
)
from testbed.hibari_driving import natural
from testbed.known_speech import KnownSpeech, espeak, pcm16, with_lead, with_pauses, with_reverb
from testbed.kokoro import kokoro_files, kokoro_voices
from testbed.missing import MissingPartError
from testbed.noise import babble, pink
from testbed.recordings import RecordingsMissingError, recordings, telephone_prompts
from testbed.sentences import ENGLISH, OTHERS
from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.hibari.published import is_installed
from voiceagent_tts.plugins.bench.texts import choose_texts

NOISE_DB = (45, 40, 30, 20)
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

Condition = Callable[[], list[KnownSpeech]]
"""Makes the contexts of a condition."""
Disturb = Callable[[KnownSpeech, int], KnownSpeech]
"""Disturbs one context; the number is its seed."""


def conditions(speech: SpeechSet) -> dict[str, Condition]:
    """The conditions of flite and of what else is installed; raises as `SpeechSet.spoken`."""
    clean = speech.spoken()
    return {
        "clean": lambda: clean,
        **_disturbed(clean, _disturbances()),
        **{name: partial(_hesitating, speech, of) for name, of in _HESITATIONS.items()},
        "numbers": replace(speech, texts=speech.numbers).spoken,
        "30 % faster": partial(speech.spoken, 1.3),
        "30 % slower": partial(speech.spoken, 0.7),
        **_disturbed(clean, {
            f"voices {factor:.0%} as high": partial(_resampled, factor=factor)
            for factor in (1.18, 0.85)
        }),
        **_natural(speech),
        **_kokoro(speech),
        **_people(speech),
        **_telephone_prompts(speech),
    }  # fmt: skip


def espeak_conditions() -> dict[str, Condition]:
    """Other voices of espeak than the aligner's references, in all its languages."""
    return {
        f"espeak, {language}": partial(_by_espeak, language, texts)
        for language, texts in {"en": ENGLISH, **OTHERS}.items()
    }


def _by_espeak(language: str, texts: Sequence[str]) -> list[KnownSpeech]:
    return [espeak(text, language, *voice) for voice in ESPEAK_VOICES for text in texts]


def _natural(speech: SpeechSet) -> dict[str, Condition]:
    """Conditions of hibari, by which no parameter was chosen; its times lag or lead by 30 ms."""
    if not is_installed():
        return {}
    return {
        "natural voice": lambda: [natural(text) for text in speech.texts],
        "natural voice, numbers": lambda: [natural(text) for text in speech.numbers],
        "natural voice, 30 % faster": lambda: [natural(text, 1.3) for text in speech.texts],
    }


def _kokoro(speech: SpeechSet) -> dict[str, Condition]:
    """Conditions of Kokoro where `make kokoro` was run: its voices take turns with the texts."""
    try:
        kokoro_files()
    except MissingPartError:
        return {}
    named = {"Kokoro, 12 voices": _by_turns(KOKORO_ENGLISH, speech.texts)}
    for language, voices in KOKORO_OTHERS.items():
        longer = choose_texts([language], ["short", "menu", "blurb"])
        texts = [*OTHERS[language], *(text.text for text in longer)]
        named[f"Kokoro, {language}"] = _by_turns(voices, texts)
    return named


def _by_turns(names: Sequence[str], texts: Sequence[str]) -> Condition:
    return lambda: [
        natural(text, voice=kokoro_voices()[name])
        for text, name in zip(texts, cycle(names), strict=False)
    ]


def _people(speech: SpeechSet) -> dict[str, Condition]:
    """Conditions of recordings, where they are installed."""
    try:
        people = recordings(speech.people)
    except RecordingsMissingError:
        return {}
    long = [spoken for spoken in people if len(spoken.words) > len(_PAUSES_MS)]
    disturbed = _disturbed(long, {"people, pink -40 dB, pauses": _in_turn(_pausing, _in(pink, 40))})
    return {"people": lambda: people, **disturbed}


def _telephone_prompts(speech: SpeechSet) -> dict[str, Condition]:
    """Conditions of one professional speaker in telephone quality, where they are installed."""
    try:
        prompts = telephone_prompts(speech.people)
    except RecordingsMissingError:
        return {}
    disturbances = {
        "telephone prompts, pink -40 dB, pauses": _in_turn(_pausing, _in(pink, 40)),
        "telephone prompts, pink -20 dB": _in(pink, 20),
        "telephone prompts, babble -20 dB": _in(babble, 20),
    }
    return {"telephone prompts": lambda: prompts, **_disturbed(prompts, disturbances)}


def _disturbed(
    clean: list[KnownSpeech], disturbances: Mapping[str, Disturb]
) -> dict[str, Condition]:
    def contexts_of(disturb: Disturb) -> list[KnownSpeech]:
        return [disturb(spoken, seed) for seed, spoken in enumerate(clean)]

    return {name: partial(contexts_of, disturb) for name, disturb in disturbances.items()}


def _disturbances() -> dict[str, Disturb]:
    found: dict[str, Disturb] = {
        "pauses": _pausing,
        "500 ms of silent lead": _lead(500),
        "reverb": _reverberant,
    }
    for name, noise in (("pink", pink), ("babble", babble)):
        for below_db in NOISE_DB:
            found[f"{name} -{below_db} dB"] = _in(noise, below_db)
            found[f"{name} -{below_db} dB, pauses"] = _in_turn(_pausing, _in(noise, below_db))
    return found | {
        "breaths": _breathing,
        "lip clicks": partial(_between_words, add=with_clicks),
        "300 ms of noisy lead": _in_turn(_lead(300), _in(pink, 30)),
        "1 s of noisy lead": _in_turn(_lead(1_000), _in(pink, 30)),
        "breaths, pink -40 dB": _in_turn(_breathing, _in(pink, 40)),
        "reverb, pink -30 dB, pauses": _in_turn(_pausing, _reverberant, _in(pink, 30)),
        "quiet speaker, pink -30 dB, pauses": _in_turn(_pausing, _in(pink, 30), _gain(-25)),
        "level falls by 15 dB": _falling_level,
    }


def _in_turn(*disturbances: Disturb) -> Disturb:
    def disturb(spoken: KnownSpeech, seed: int) -> KnownSpeech:
        for each in disturbances:
            spoken = each(spoken, seed)
        return spoken

    return disturb


def _in(noise: Noise, below_db: float) -> Disturb:
    return partial(with_noise, noise=noise, below_db=below_db)


def _lead(lead_ms: int) -> Disturb:
    return lambda spoken, _: with_lead(spoken, lead_ms)


def _gain(gain_db: float) -> Disturb:
    return lambda spoken, _: with_gain(spoken, gain_db)


def _reverberant(spoken: KnownSpeech, _: int) -> KnownSpeech:
    return with_reverb(spoken)


def _pausing(spoken: KnownSpeech, seed: int) -> KnownSpeech:
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
    level = (_gain(-15), _in(pink, 30)) if seed % 2 else (_in(pink, 45),)
    return _in_turn(_pausing, *level)(spoken, seed)


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
