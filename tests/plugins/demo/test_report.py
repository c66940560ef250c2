"""What the demo prints of its results."""

import dataclasses

from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.plugins.demo.realtime_file_transport import Utterance
from voiceagent_tts.plugins.demo.report import DemoTurn, Score, sentence_of


def test_the_sentence_counts_the_cuts() -> None:
    """Exact ones, and the others by their distance."""
    words = [WordTimestamp(Word("Hello.", 0, 6), 0, 24_000, 1.0)]
    turn = DemoTurn("en", "Hello.", is_interrupted=True, words=words, committed="Hello.")
    exact = Score(turn, Utterance("a", [(0, 12_000)]), "Hello.", True, 0, 0, [])
    short = dataclasses.replace(exact, is_exact=False, error_words=-1)
    long = dataclasses.replace(exact, is_exact=False, error_words=2)
    assert sentence_of([exact]) == "Interrupted answers: 1 of 1 exact."
    assert sentence_of([exact, short]) == "Interrupted answers: 1 of 2 exact, one a word short."
    assert sentence_of([short, short, long]) == (
        "Interrupted answers: 0 of 3 exact, 2 a word short, one long by 2 words."
    )
