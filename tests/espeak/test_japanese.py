import sys
from collections.abc import Iterator

import pytest

from testbed.segment_driving import UNLIMITED, Driver, of_type
from voiceagent_tts.core import WarningCode
from voiceagent_tts.espeak.japanese import to_kana
from voiceagent_tts.seam.commands import Append, Credit, Submit
from voiceagent_tts.seam.events import AudioStep, Warned, Words
from voiceagent_tts.text.morphemes import japanese_tokenizer
from voiceagent_tts.text.readings import Said
from voiceagent_tts.text.words import split_words

pytest.importorskip("janome")


def kana(text: str, base: int = 0) -> Said:
    """The reading of `text`, which begins at offset `base` of its context."""
    return to_kana(Said(text, tuple(range(base, base + len(text)))))[0]


def test_kanji_become_readings_with_spaces_between_morphemes() -> None:
    assert kana("今日は東京へ行きます。").text == "キョー ワ トーキョー エ イキ マス。"


def test_a_month_behind_digits_is_no_moon() -> None:
    assert kana("2026年11月25日の月").text == "2026 ネン 11 ガツ 25 ニチ ノ ツキ"
    assert kana("月").text == "ツキ"


def test_other_scripts_stay_as_they_are() -> None:
    """Latin words and numbers stay unchanged, with their own spaces only."""
    assert kana("Python 3.11を使う").text == "Python 3.11 ヲ ツカウ"


def test_offsets_never_decrease_and_match_the_text() -> None:
    """`time_words` relies on it for every spoken text."""
    text = "お名前をもう一度、ＡＰＩと45ユーロ「はい」 々々 ッ ー 𠮷野家 で\u3000す。"
    spoken = kana(text)
    assert len(spoken.text) == len(spoken.offsets)
    assert list(spoken.offsets) == sorted(spoken.offsets)
    assert set(spoken.offsets) <= set(range(len(text)))


def test_words_are_the_clients_characters(driver: Driver) -> None:
    text = "明日、東京で会いましょう。"
    driver.speak(text, "ja")
    words = [word.word for event in of_type(Words, driver.events) for word in event.words]
    assert words == split_words(text)


@pytest.fixture
def _without_janome(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "janome", None)
    monkeypatch.setitem(sys.modules, "janome.tokenizer", None)
    japanese_tokenizer.cache_clear()
    yield
    japanese_tokenizer.cache_clear()


@pytest.mark.usefixtures("_without_janome")
@pytest.mark.parametrize(
    ("text", "language", "is_warned"),
    [
        ("明日、東京で会いましょう。そして電話します。", "ja", True),
        ("キャベツと、ﾗｰﾒﾝを、ひとつ。", "ja", False),
        ("明天在东京见。", "zh", False),
    ],
)
def test_without_janome_the_client_is_warned_once_of_kanji(
    driver: Driver, text: str, language: str, is_warned: bool
) -> None:
    context = 1 + len(driver.events)
    submit = Submit(context, text, 0, True, "default", language)
    append = Append(context, text, len(text), False, language)
    events = driver.run(submit, append, Credit(context, 0.0, UNLIMITED))
    warnings = of_type(Warned, events)
    assert [warning.code for warning in warnings] == [WarningCode.KANJI_SPELLED_OUT] * is_warned
    if is_warned:
        assert events.index(warnings[0]) < events.index(of_type(AudioStep, events)[0])
        assert "pip install 'voiceagent-tts[japanese]'" in warnings[0].message
        assert warnings[0].message.isascii()
