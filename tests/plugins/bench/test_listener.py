import math

from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.listener import play

SECOND = SAMPLE_RATE_HZ


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, SECOND)), min_size=1, max_size=30),
    st.floats(0, 1000),
)
def test_playing_takes_the_length_of_the_audio_and_of_the_underruns(
    messages: list[tuple[float, int]], origin: float
):
    """Playback takes the length of all audio and what came late, which is in underruns.

    Lateness of less than half a sample is rounding, and in none.
    """
    times, now = [], origin
    for wait_s, _ in messages:
        now += wait_s
        times.append(now)
    sizes = [samples for _, samples in messages]
    playback = play(times, sizes)
    end = playback.starts[-1] + sizes[-1] / SECOND
    speech_s = sum(sizes) / SECOND
    late_s = sum(late for late in playback.lateness_s if late > 0)
    assert math.isclose(end - playback.starts[0], speech_s + late_s, abs_tol=1e-6)
    assert 0 <= late_s - playback.underrun_s < len(messages) * 0.5 / SECOND + 1e-9
