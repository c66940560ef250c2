from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.alignment import methods
from benchmarks.alignment.conditions import conditions
from benchmarks.alignment.cuts import errors_ms
from benchmarks.alignment.playback import BARGE_IN_S, play
from benchmarks.alignment.speech import DEVELOPMENT, HELD_OUT
from testbed.known_speech import KnownSpeech, espeak
from testbed.recordings import RecordingsMissingError, telephone_prompts
from testbed.sentences import ENGLISH
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import SAMPLE_RATE_HZ, samples_to_ms


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


def test_the_simulated_forced_aligner_is_as_good_as_published() -> None:
    """Its mean error is 32 ms; its times are steps of 80 ms, in order."""
    random = Random(3)
    contexts = [espeak(text, "en", "f2", 1.5) for text in ENGLISH]
    times = [methods.forced_times(spoken, random) for spoken in contexts]
    errors = [errors_ms(ours, spoken.words) for ours, spoken in zip(times, contexts, strict=True)]
    assert np.concatenate(errors).mean() == pytest.approx(32.4, abs=4)
    rows = [row.start_sample for row in times[0]]
    assert rows == sorted(rows)
    assert all(samples_to_ms(row) % 80 == 0 for row in rows[:-1])
