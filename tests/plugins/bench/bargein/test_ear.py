"""A recogniser as a judge: which words of the reply its transcript reaches."""

import pytest

from testbed.hibari_driving import natural
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.bargein.ear import Ear, heard_count
from voiceagent_tts.plugins.bench.bargein.heard import heard_in
from voiceagent_tts.plugins.bench.bargein.judge import Recording

REPLY = "The total is $42.50 today, 15% less than Dr. Smith's."


@pytest.mark.parametrize(
    ("transcript", "heard"),
    [
        ("", 0),
        ("The total", 2),
        ("the total is $42.50", 4),
        ("The total is forty-two dollars", 4),
        ("The total is $42.50 today 15%", 6),
        ("the total is forty two dollars and fifty cents to", 5),
        ("The total is ... thank you.", 3),
        ("A total is $42.50 today, fifteen percent less than Doctor Smith's", 10),
    ],
)
def test_the_words_that_a_transcript_reaches_were_heard(transcript: str, heard: int) -> None:
    """However numbers are written; a word that begins alike was cut off, others were not said."""
    ear = Ear(lambda samples, language: transcript)
    found = ear.heard(Recording("x", "en", REPLY, b"\0\0" * 100))
    assert found.heard == found.begun == found.finished == frozenset(range(heard))


def test_a_repeated_word_is_not_taken_for_a_later_one() -> None:
    """The prefix that is most like the transcript counts, not the last equal word."""
    reply = "it goes on and on and on".split()
    assert heard_count(["it", "goes", "on"], reply) == 3
    assert heard_count(["it", "goes", "on", "and", "on"], reply) == 5


def test_a_real_recogniser_hears_how_far_a_natural_voice_came() -> None:
    """pocketsphinx, whose many errors cost at most a few words at the end."""
    spoken = natural("please take a seat and i will be with you in five minutes")
    ear = Ear.open("pocketsphinx")
    for seconds in (1.2, 2.4):
        pcm = spoken.pcm[: int(seconds * SAMPLE_RATE_HZ) * BYTES_PER_SAMPLE]
        true = heard_in(spoken.words, len(pcm) // BYTES_PER_SAMPLE).heard
        found = ear.heard(Recording("x", "en", spoken.text, pcm)).heard
        assert abs(len(found) - len(true)) <= 2
