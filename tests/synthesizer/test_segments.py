"""Text divided into segments, and the language of each."""

import pytest

from testbed.scripted_context import ScriptedWorker
from voiceagent_tts.core import Segment
from voiceagent_tts.seam.commands import Append, SpeechOptions, Submit
from voiceagent_tts.synthesizer.masked_intake import MaskedIntake
from voiceagent_tts.synthesizer.options import ContextOptions, ContextRequest, Limits
from voiceagent_tts.synthesizer.segments import Finish, Flush, QueuedSegment
from voiceagent_tts.synthesizer.workers import Speaker
from voiceagent_tts.text.segmenter import MAX_SEGMENT_CHARS
from voiceagent_tts.voices import Voice

BREAK = '<break time="300ms"/>'
GERMAN = "Guten Tag, wie geht es Ihnen heute?"


def queued(*texts: str, flush: bool = False) -> list[QueuedSegment]:
    """The segments of a context whose client named no language."""
    options = ContextOptions(has_markup=True)
    voice = Voice("nova", "worker")
    request = ContextRequest(options, voice, None, "segment", SpeechOptions(), 1.0)
    intake = MaskedIntake(request, Limits())
    for text in texts:
        intake.receive(text)
        intake.received += [Flush(1, intake.chars)] if flush else ()
    intake.received.append(Finish())
    parts: list[object] = []
    while intake.received or intake.divided:
        parts += intake.pop_parts(0.0)
    return [part for part in parts if isinstance(part, QueuedSegment)]


@pytest.mark.parametrize(
    "silence", [BREAK, 2 * BREAK, f"...{BREAK}", f"\N{WAVING HAND SIGN} {BREAK}"]
)
def test_what_says_nothing_has_the_language_of_the_speech_behind_it(silence: str) -> None:
    """It begins the context, and so decides which worker speaks the rest."""
    *first, last = queued(silence, GERMAN)
    assert {each.language for each in (*first, last)} == {"de"}
    assert "".join(each.segment.text for each in (*first, last)).endswith(GERMAN)
    assert first[0].segment.char_start == 0 and last.is_last


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Voilà! Your order is complete, and it ships today.", "en"),
        (f"Bonjour ! {BREAK} Comment allez-vous aujourd'hui ?", "fr"),
        (f"{BREAK} Voilà! {BREAK} Your order is complete.", "en"),
    ],
)
def test_text_that_has_arrived_decides_the_language_of_a_doubtful_beginning(
    text: str, language: str
) -> None:
    """The first segment chooses the voice that speaks the whole context."""
    assert {each.language for each in queued(text)} == {language}


def test_silence_waits_for_no_speech_that_may_never_come() -> None:
    """A flush, the end, and a long silence are passed on, in the language of speech without any."""
    (flushed,) = queued(BREAK, flush=True)
    (ended,) = queued(BREAK)
    assert flushed.language == ended.language == "en"
    assert ended.is_last and ended.segment == Segment(len(BREAK) * " ", 0)
    text = "... " * MAX_SEGMENT_CHARS
    assert "".join(each.segment.text for each in queued(text)) == text


def test_after_a_language_that_the_voice_lacks_the_one_before_goes_on() -> None:
    """What is too short to tell is not read in the engine's own choice of a language."""
    worker, voice = ScriptedWorker(), Voice("nova", "worker")
    request = ContextRequest(
        ContextOptions(), voice, None, "segment", SpeechOptions(), 1.0, languages=("de", "en")
    )
    speaker = Speaker(worker, request, lambda _: None)
    for part in queued(f"{GERMAN} नमस्ते, आप कैसे हैं? Alles klar. Um 12:30."):
        speaker.speak(part)
    said = [each for each in worker.commands if isinstance(each, Submit | Append)]
    assert [each.language for each in said] == ["de"] * 4


@pytest.mark.parametrize("before", ["pre" * 8, "Say pre", "(" * 100])
def test_no_segment_ends_inside_a_reading(before: str) -> None:
    """However long the word is that it is part of: an engine would spell the rest of its mask."""
    element = '<sub alias="Bee">' + "c" * 210 + "</sub>"
    text = f"{before}{element} end."
    segments = [each.segment for each in queued(text)]
    assert "".join(each.text for each in segments) == text.replace(element, "x" * len(element))
    (spoken,) = (each for each in segments if each.readings)
    (reading,) = spoken.readings
    assert (reading.char_start, reading.char_end) == (len(before), len(before + element))
    assert spoken.char_start <= reading.char_start < reading.char_end <= spoken.char_end
