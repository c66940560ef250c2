"""The host's table of rows: the random numbers of every frame, drawn in steps of equal length."""

from dataclasses import replace

import numpy as np
import pytest

from voiceagent_tts.engine import row_table
from voiceagent_tts.engine.row_table import RowTable
from voiceagent_tts.model.sampling import SamplingParams, SamplingSettings, uniforms

SAMPLED = SamplingParams(SamplingSettings(), SamplingSettings())
CODEBOOKS = 16


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of rows of each call of the generator."""
    calls: list[int] = []

    def count(seeds: np.ndarray, frames: np.ndarray, codebooks: int) -> np.ndarray:
        calls.append(len(seeds))
        return uniforms(seeds, frames, codebooks)

    monkeypatch.setattr(row_table, "uniforms", count)
    return calls


def table_of(rows: int) -> RowTable:
    """Make a table whose rows have all joined, with seeds of their own."""
    table = RowTable(rows, 512, CODEBOOKS, pages=2)
    for row in range(rows):
        table.join(row, replace(SAMPLED, seed=7 - 3 * row), 400)
    table.begin(np.arange(rows))
    return table


def step(table: RowTable, rows: np.ndarray) -> None:
    """Make a frame of some rows."""
    table.prepare(rows, pad=0)
    table.advance(rows)


def test_rows_that_start_together_draw_in_different_steps(drawn: list[int]) -> None:
    """A burst draws in one call, and later every step draws for few rows, in at most one call."""
    table, rows = table_of(64), np.arange(64)
    assert drawn == [64]
    for _ in range(200):
        before = len(drawn)
        step(table, rows)
        assert drawn[before:] in ([], [2])


def test_every_frame_has_its_own_numbers() -> None:
    """Whichever rows speak in a step, a frame gets the numbers of its row's seed and its index."""
    table, choices = table_of(5), np.random.default_rng(3)
    for _ in range(250):
        rows = np.flatnonzero(choices.random(5) < 0.7)
        frames = table.records["frame"][rows].astype(int)
        table.prepare(rows, pad=0)
        both = uniforms(table.seeds[rows], frames[:, None] + [0, 1], CODEBOOKS)
        noise = table.records["noise"][rows]
        assert (noise[:, 1:] == both[:, 0, 1:]).all()
        assert (noise[:, 0] == both[:, 1, 0]).all()
        if choices.random() < 0.8:  # else the step is prepared again
            table.advance(rows)
    assert table.records["frame"][:5].min() > 100


def test_a_row_that_starts_again_draws_again(drawn: list[int]) -> None:
    """A second sequence in a row has the numbers of its own seed."""
    table = table_of(2)
    for _ in range(40):
        step(table, np.arange(2))
    table.join(1, replace(SAMPLED, seed=99), 400)
    table.begin(np.array([1]))
    assert drawn[-1] == 1
    table.prepare(np.array([1]), pad=0)
    (expected,) = uniforms(np.array([99], np.uint64), np.array([[0, 1]]), CODEBOOKS)
    assert (table.records["noise"][1, 1:] == expected[0, 1:]).all()
