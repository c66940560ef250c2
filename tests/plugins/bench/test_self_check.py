import pytest

from testbed.scripted_time import run_scripted
from voiceagent_tts.plugins.bench.scripted_server import Played, ScriptedServer
from voiceagent_tts.plugins.bench.self_check import MEASURES, SCRIPT, errors_ms, measure


def test_on_a_scripted_clock_nothing_is_added() -> None:
    """The server keeps to its script, and every error is less than half a sample."""

    async def run() -> dict[str, dict[str, list[float]]]:
        async with ScriptedServer(SCRIPT).running() as server:

            async def truth() -> dict[str, Played]:
                for played in server.played.values():
                    sent_s = [at - played.began for at in played.sent]
                    assert sent_s == pytest.approx([step.at_s for step in SCRIPT.steps])
                    assert played.ended - played.began == pytest.approx(SCRIPT.end_s)
                return server.played

            return await errors_ms(server.addresses, truth, 1, 0.2)

    for by_name in run_scripted(run()).values():
        assert by_name.keys() == set(MEASURES)
        assert all(abs(error) < 0.02 for errors in by_name.values() for error in errors)


@pytest.mark.thorough
async def test_the_wall_clock_only_adds() -> None:
    """With the server in a process of its own, what arrives is never early."""
    figures = await measure((1,), 0.1)
    for by_name in figures["1"].values():
        assert by_name["first_byte_ms"]["n"] >= 1
        assert by_name["first_byte_ms"]["p50"] > -1
