"""The check of the benchmark's truth: which words are compared, and what is told of them."""

from benchmarks.alignment.truth import differences_ms, figures_of
from testbed.known_speech import Spoken
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.text.words import split_words


def test_only_words_that_were_heard_as_written_are_compared() -> None:
    """Marks and case do not count; what is heard otherwise, twice or not at all is left out."""
    text = "Well, you owe forty dollars today."
    words = tuple(
        WordTimestamp(word, place * SAMPLE_RATE_HZ, None, 1.0)
        for place, word in enumerate(split_words(text))
    )
    spoken = Spoken("en", "voice", text, b"", words)
    heard = [("well", 0.05), ("you", 1.1), ("oh", 2.0), ("$40", 3.0), ("Today!", 4.8), ("bye", 6.0)]
    found = [round(each) for each in differences_ms(spoken, heard)]
    assert found == [50, 100, -200]


def test_a_constant_error_of_the_listener_does_not_count() -> None:
    """Whisper's own is the median of a voice whose times are exact."""
    figures = figures_of([80.0, 80.0, 80.0, 80.0, 90.0, 70.0, 80.0, 80.0, 80.0, 380.0])
    assert figures["median_ms"] == 80.0 and figures["p90_from_it_ms"] < 50
    assert figures["further_than_200_ms_pct"] == 10.0
