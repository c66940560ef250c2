"""Interruptions every 130 ms, on a simulated clock: the words that had begun to be heard.

The aligner, the rule that publishes words and both clocks are the server's own.
"""

from random import Random

import pytest

from benchmarks.alignment.measure import cuts_of, words_begun
from benchmarks.alignment.playback import play
from testbed.known_speech import KnownSpeech, espeak, joined, read_as, with_pauses
from testbed.sentences import ENGLISH
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import ms_to_samples

DIGITS = "zero one two three four five six seven eight nine".split()
CODES = (
    "Your code is {}, and please keep it until you arrive at the desk. Then show it there.",
    "I have sent the number {} to your phone, so read it out to me when it comes.",
    "The order {} left this morning and it will be with you on Friday.",
)
EARLY_MS = 200


def with_code(frame: str, code: str, voice: str) -> KnownSpeech:
    """A text with a code that is read digit by digit."""
    return read_as(frame, code, " ".join(DIGITS[int(digit)] for digit in code), voice)


@pytest.mark.parametrize("frame", CODES)
def test_codes_of_four_digits_leave_the_history_exact(frame: str) -> None:
    """At least 88 % of the cuts have exactly the words heard, and 99 % all but one."""
    random, aligner = Random(frame), OnlineAligner()
    spoken = [
        with_code(frame, "".join(random.choices("123456789", k=4)), voice)
        for voice in ("m5", "f2", "m3")
    ]
    cuts = cuts_of(lambda each, rtf: play(each, rtf, aligner.open("en", "new")), spoken, rtf=0.5)
    assert cuts.exact_pct >= 88 and cuts.within_one_pct >= 99, cuts
    assert cuts.late_pct == 0


@pytest.mark.parametrize("pause_ms", [0, 300, 1000])
@pytest.mark.parametrize("rtf", [0.95, 0.99])
def test_no_word_behind_a_sentence_is_heard_before_it_begins(pause_ms: int, rtf: float) -> None:
    """A slow engine leaves no time to find it: it leaves early, and its time is mended in time.

    At no cut is a word among those heard that begins more than 200 ms later.
    """
    spoken = joined([espeak(text, "en", "m5") for text in ENGLISH[:6]])
    behind = [at for at, each in enumerate(spoken.words[:-1], 1) if each.word.text[-1] in ".?!"]
    spoken = with_pauses(spoken, [(at, pause_ms) for at in behind])
    playback = play(spoken, rtf, OnlineAligner().open("en", "new"))
    soon = [each.later(-ms_to_samples(EARLY_MS)) for each in spoken.words]
    early = [each.words - words_begun(soon, each) for each in playback.barge_ins]
    assert len(early) > 100 and max(early) <= 0
