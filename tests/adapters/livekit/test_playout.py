"""Which words of a reply were heard when this much of it was played."""

import pytest

from voiceagent_tts.adapters.livekit.playout import Playout
from voiceagent_tts.adapters.turn import TurnWord
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.protocol.client_connection import ContextRecord
from voiceagent_tts.protocol.messages import AudioFormat
from voiceagent_tts.text.words import split_words

TEXT = "One, two, three. Four, five."
WORD_MS = 300


def playing(audio_ms: int, *, latency_s: float = 0.0, words: int = 5) -> Playout:
    """A reply whose words take 300 ms each, of which `audio_ms` have arrived."""
    playout = Playout(latency_s)
    playout.text = TEXT
    playout.play(ms_to_samples(audio_ms), 0.0)
    record = ContextRecord("1", AudioFormat(), text=TEXT)
    record.words = [
        WordTimestamp(word, ms_to_samples(index * WORD_MS), None, 1.0)
        for index, word in enumerate(split_words(TEXT))
    ]
    playout.words = [TurnWord(each, record, 0, 0) for each in record.words[:words]]
    return playout


def test_a_complete_reply_is_heard_whole_although_an_output_rounds() -> None:
    """The last milliseconds do not matter, and neither do marks and spaces after the last word."""
    playout = playing(1500)
    playout.text += " 🙂"
    assert playout.heard_text(1.48) == TEXT
    playout.is_complete = True
    assert playout.heard_text(1.48) == TEXT + " 🙂"
    assert playout.heard_text(1.3) == TEXT


def test_playback_that_starts_late_leaves_more_to_hear() -> None:
    """The listener has all audio left when playback starts, whenever that is."""
    playout = playing(1000)
    playout.play(ms_to_samples(500), 0.2)
    assert playout.left_s(0.2) == 1.3
    playout.awaits_start = True
    assert playout.left_s(3.0) == 1.5
    playout.start(4.0)
    assert playout.left_s(5.0) == 0.5
    assert playout.samples == 1.5 * SAMPLE_RATE_HZ


def test_a_gap_before_playback_starts_is_no_silence() -> None:
    """With preemptive synthesis nobody listens yet; a gap that is heard moves words."""
    playout = playing(500)
    playout.awaits_start = True
    playout.play(ms_to_samples(500), 3.0)
    assert playout.underrun_s == 0.0
    playout.start(4.0)
    playout.play(ms_to_samples(500), 6.0)
    assert playout.underrun_s == pytest.approx(1.0)


@pytest.mark.parametrize("arrives_at", [0.4, 0.9, 2.0])
def test_audio_that_arrives_in_a_pause_changes_nothing_of_what_was_heard(arrives_at: float) -> None:
    """A listener hears nothing while LiveKit pauses a reply, so no audio is missing then.

    LiveKit pauses a reply as soon as the user speaks, and cuts it up to a second later. A server
    that was restarted just before sends its next audio within that second.
    """
    playout = playing(700)
    playout.start(0.0)
    playout.pause(0.4)
    playout.play(ms_to_samples(800), arrives_at)
    assert playout.heard_text(playout.possible_s(0.4, 2.0)) == "One, two,"
    assert playout.left_s(2.0) == pytest.approx(1.1)

    playout.resume(3.0)
    assert playout.left_s(3.2) == pytest.approx(0.9)
    assert playout.heard_text(playout.possible_s(0.63, 3.23)) == "One, two, three."


def test_an_output_that_counts_a_pause_or_a_gap_is_not_believed() -> None:
    """What it reports is bounded by what can have been heard since playback started."""
    playout = playing(400)
    playout.start(0.0)
    playout.play(ms_to_samples(1100), 1.0)
    assert playout.heard_text(playout.possible_s(1.2, 1.2)) == "One, two, three."
    playout.pause(1.2)
    playout.play(ms_to_samples(100), 1.9)
    assert playout.heard_text(playout.possible_s(1.9, 1.9)) == "One, two, three."
