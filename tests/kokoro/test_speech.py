"""Kokoro's words are where they are heard. A second of speech takes a third of one: few texts."""

import numpy as np
import pytest

from testbed.hibari_driving import natural
from testbed.spoken_words import all_of, errors_ms, speech
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.audio.levels import onsets
from voiceagent_tts.core import SAMPLE_RATE_HZ, ms_to_samples
from voiceagent_tts.phonemes.reading import LoadedVoice
from voiceagent_tts.text.words import split_words

pytestmark = [pytest.mark.kokoro, pytest.mark.xdist_group("kokoro")]

HELD_OUT = (
    "my flight was late so i took a taxi to the hotel",
    "you will find the bathroom at the end of the hall",
)
"""Sentences by which no constant of the module was chosen; these are hibari's."""
_ENGLISH = (
    "af_heart", "af_bella", "af_sarah", "af_sky", "am_michael", "am_fenrir", "am_puck", "am_onyx",
    "bf_emma", "bf_lily", "bm_george", "bm_lewis",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", ["af_heart", *(pytest.param(n, marks=pytest.mark.thorough) for n in _ENGLISH[1:])]
)
def test_words_are_where_a_forced_alignment_has_them(
    voices: dict[str, LoadedVoice], name: str
) -> None:
    """pocketsphinx, which knows the words and hears the audio, finds the same times."""
    starts, ends = errors_ms(voices[name], HELD_OUT)
    assert abs(np.median(starts)) < 20 and abs(np.median(ends)) < 30
    assert np.percentile(np.abs(starts), 90) < 60


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ef_dora", "Hola, ¿qué tal?"),
        *(
            pytest.param(name, text, marks=pytest.mark.thorough)
            for name, text in (
                ("ff_siwis", "Bonjour, ça va ?"),
                ("if_sara", "Ciao, come stai?"),
                ("pm_alex", "Olá, tudo bem?"),
                ("hf_alpha", "नमस्ते, आप कैसे हैं?"),
            )
        ),
    ],
)
def test_each_language_is_spoken_with_its_words(
    voices: dict[str, LoadedVoice], name: str, text: str
) -> None:
    """The first word begins with the audio, and the last one ends near its end."""
    pcm, words, parts = all_of(speech(voices[name], text))
    assert words[0].start_sample == 0
    assert onsets(pcm, min_pause_ms=60)[0] <= ms_to_samples(20)
    borders = [border for word in words for border in (word.start_sample, word.end_sample)]
    assert borders == sorted(borders) and borders[-1] <= len(pcm) // 2
    assert len(pcm) // 2 - borders[-1] < ms_to_samples(200)
    assert parts[0] < 1.6 * SAMPLE_RATE_HZ


@pytest.mark.parametrize(
    "text",
    ["Le premier train part à trois heures.", "Un peu de beurre, un verre d'eau, trois œufs."],
)
def test_the_online_aligner_finds_french_words(voices: dict[str, LoadedVoice], text: str) -> None:
    """Its "r", its nasal and its rounded vowels are not those of espeak, which names the phones."""
    spoken = natural(text, voice=voices["ff_siwis"])
    session = OnlineAligner().open("fr", "v")
    session.append(split_words(text))
    found = (*session.push(spoken.pcm), *session.finish())
    pairs = zip(found, spoken.words, strict=True)
    assert all(
        abs(ours.start_sample - true.start_sample) < ms_to_samples(120) for ours, true in pairs
    )
