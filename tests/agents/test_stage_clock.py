"""The stage clock: the latency of turns, split into stages."""

from agents.stage_clock import Stage, StageClock


def measure(clock: StageClock, start_s: float, *lengths_s: float) -> None:
    """One turn whose stages have these lengths."""
    clock.start_turn(start_s)
    for stage, length_s in zip(Stage, lengths_s, strict=False):
        start_s += length_s
        clock.end_stage(stage, start_s)


def test_the_stages_of_a_turn_add_up_to_its_latency() -> None:
    """Each stage starts where the stage before it ends."""
    clock = StageClock()
    measure(clock, 10.0, 0.5, 0.25, 0.125, 0.0625)
    (turn,) = clock.turns
    assert list(turn.stages.values()) == [0.5, 0.25, 0.125, 0.0625]
    assert turn.total_s == 0.9375


def test_a_stage_of_the_reply_before_is_ignored() -> None:
    """The user makes a sound while the LLM writes; its token ends no stage of the new turn."""
    clock = StageClock()
    clock.start_turn(0.0)
    clock.end_stage(Stage.VAD, 0.5)
    clock.end_stage(Stage.LLM, 0.6)
    clock.end_stage(Stage.STT, 0.75)
    clock.end_stage(Stage.LLM, 1.0)
    clock.end_stage(Stage.TTS, 1.25)
    (turn,) = clock.turns
    assert turn.stages[Stage.STT] == 0.25
    assert turn.stages[Stage.LLM] == 0.25
