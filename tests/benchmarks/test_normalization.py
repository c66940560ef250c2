import pytest

from benchmarks.normalization import _UNREAD, rows
from voiceagent_tts.text.locales import LANGUAGES


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_left_that_a_voice_cannot_read(language: str) -> None:
    """Sixty inputs or more in each language; every one is given to such a voice in words."""
    table = list(rows(language))
    assert len({written for written, _, _ in table}) >= 60
    assert [written for written, _, words in table if _UNREAD.search(words)] == []
