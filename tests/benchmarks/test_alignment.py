from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.alignment.conditions import conditions
from benchmarks.alignment.playback import BARGE_IN_S, play
from benchmarks.alignment.speech import DEVELOPMENT, HELD_OUT
from testbed.known_speech import KnownSpeech, espeak
from testbed.recordings import RecordingsMissingError, telephone_prompts
from testbed.sentences import ENGLISH
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import SAMPLE_RATE_HZ


@pytest.fixture(scope="module")
def spoken() -> KnownSpeech:
    """A sentence with known word times."""
    return espeak(ENGLISH[2], "en", "f2")


def test_development_and_held_out_speech_share_nothing() -> None:
    """Neither a voice nor a text."""
    for kind in ("voices", "texts", "numbers"):
        assert not set(getattr(HELD_OUT, kind)) & set(getattr(DEVELOPMENT, kind))


def test_missing_prompts_are_reported_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error names the folder and the command; the benchmark leaves their rows out."""
    monkeypatch.setattr("testbed.recordings.PROMPTS_FOLDER", tmp_path / "missing")
    with pytest.raises(RecordingsMissingError, match=r"prompts in .*missing.*try make recordings"):
        telephone_prompts("test")
    names = conditions(HELD_OUT.few(1))
    assert not [name for name in names if name.startswith("telephone")]


@pytest.mark.parametrize("rtf", [0.2, 0.95])
def test_barge_ins_cover_the_whole_context(spoken: KnownSpeech, rtf: float) -> None:
    """There is one every 130 ms to the end; words are sent once, in order and in time."""
    session = OnlineAligner().open("en", "f2")
    playback = play(spoken, rtf, session)
    played = [barge_in.played_samples for barge_in in playback.barge_ins]
    assert played[-1] == spoken.samples
    assert {round(b - a) for a, b in pairwise(played[:-1])} == {round(BARGE_IN_S * SAMPLE_RATE_HZ)}
    assert [word.word for word in playback.words] == [word.word for word in spoken.words]
    assert playback.late == 0
