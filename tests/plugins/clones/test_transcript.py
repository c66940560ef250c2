"""Transcripts of recordings: what cannot have been said is refused, what is unlikely is told."""

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.clones.transcript import transcript_problems

PROSE = (
    "Your table for four is booked for Friday at half past seven. It is the quiet one by the "
    "window, and the kitchen knows about the walnut allergy."
)  # 9.4 s at a usual pace


@pytest.mark.parametrize(
    ("text", "speech_s"),
    [
        (PROSE, 7.5),
        (PROSE, 14.0),
        ("今天天气很好，我们去公园散步吧。", 3.5),
        ("今日はとても天気がいいですね。", 2.6),
        ("오늘 날씨가 정말 좋네요.", 2.0),
        ("Добрый вечер, ваш столик готов.", 2.4),
    ],
)
def test_what_people_say_is_accepted(text: str, speech_s: float) -> None:
    """Slow, usual and fast speech, in every script of the models."""
    assert transcript_problems(text, speech_s) == []


@pytest.mark.parametrize(
    ("text", "speech_s"),
    [("Hi.", 10.0), (" ".join([PROSE] * 18), 10.0), ("...", 5.0)],
)
def test_what_cannot_have_been_said_is_refused(text: str, speech_s: float) -> None:
    """Too little or too much text; the message does not show it."""
    with pytest.raises(InvalidRequestError) as refused:
        transcript_problems(text, speech_s)
    assert f"{len(text)} characters" in refused.value.message
    assert text not in refused.value.message


@pytest.mark.parametrize("text", ["صباح الخير كيف حالك اليوم", "Καλημέρα σας"])
def test_a_script_that_no_model_reads_is_refused(text: str) -> None:
    """Another language of the same script cannot be told from the text alone."""
    with pytest.raises(InvalidRequestError, match="script"):
        transcript_problems(text, len(text) / 15)


@pytest.mark.parametrize("speech_s", [30.0, 4.5])
def test_what_is_unlikely_is_told(speech_s: float) -> None:
    """It may be a very slow or fast speaker; the voice is made."""
    (problem,) = transcript_problems(PROSE, speech_s)
    assert "other words" in problem
