"""Usage by key and day."""

from datetime import date, timedelta

import pytest

from voiceagent_tts.plugins.usage import book as usage
from voiceagent_tts.plugins.usage.book import MAX_DAYS, UsageBook, Used


async def test_use_adds_up_by_day_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each day starts anew; days that nobody asks for are not shown, old ones are forgotten."""
    book, day = UsageBook(None), date(2026, 11, 23)
    monkeypatch.setattr(usage, "today", lambda: day)
    for _ in range(3):
        book.add("one", Used(1, 10, 333))
    book.add("other", Used(1, 5, 0))
    assert await book.read(1) == {day: {"one": Used(3, 30, 999), "other": Used(1, 5, 0)}}
    first, day = day, day + timedelta(days=1)
    book.add("one", Used(1, 1, 1))
    assert await book.read(1) == {day: {"one": Used(1, 1, 1)}}
    assert set(await book.read(2)) == {first, day}
    await book.flush()  # without Redis nothing leaves the memory
    assert set(await book.read(2)) == {first, day}
    day += timedelta(days=MAX_DAYS)
    book.add("one", Used())
    assert set(book._days) == {day}
