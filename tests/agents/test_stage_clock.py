"""The stage clock: the latency of turns, split into stages."""

from agents.stage_clock import Percentiles, Stage, StageClock


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


def test_percentiles_are_those_of_each_stage_and_of_the_total() -> None:
    """The 95th percentile of the total is not the sum of those of the stages."""
    clock = StageClock()
    for index in range(101):
        measure(clock, 0.0, 0.001 * index, 0.0, 0.001 * (100 - index), 0.0)
    percentiles = clock.percentiles()
    assert list(percentiles) == ["VAD", "STT", "LLM", "TTS", "total"]
    assert percentiles["VAD"] == percentiles["LLM"] == Percentiles(50, 95)
    assert percentiles["total"] == Percentiles(100, 100)


def test_a_turn_without_an_audible_answer_does_not_count() -> None:
    """Dropped turns and turns that the next one replaces leave no latency."""
    clock = StageClock()
    measure(clock, 0.0, 0.5, 0.25)
    measure(clock, 5.0, 0.5, 0.25)
    clock.drop_turn()
    clock.end_stage(Stage.LLM, 6.0)
    assert clock.turns == []
    assert clock.percentiles() == {}


def test_only_the_first_end_of_a_stage_counts() -> None:
    """Every token reports the end of the stage; the first one ends it."""
    clock = StageClock()
    measure(clock, 0.0, 0.5, 0.25, 0.25)
    clock.end_stage(Stage.LLM, 3.0)
    clock.end_stage(Stage.TTS, 1.5)
    assert clock.turns[0].total_s == 1.5


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
