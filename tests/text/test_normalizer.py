import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.texts import any_text
from testbed.timing import is_linear
from voiceagent_tts.text import abbreviations, normalizer
from voiceagent_tts.text.locales import LANGUAGES, Locale, locale_of
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.readings import Said, said
from voiceagent_tts.text.words import split_words


def _fail(match: re.Match[str]) -> tuple[int, bool]:
    raise IndexError(match[0])


def _raise(record: logging.LogRecord) -> bool:
    raise AssertionError(record.getMessage())


@pytest.fixture(autouse=True)
def no_rule_fails() -> Iterator[None]:
    """A rule that fails for a text leaves it as it is; here the test fails too."""
    logger = logging.getLogger(normalizer.__name__)
    logger.addFilter(_raise)
    yield
    logger.removeFilter(_raise)


def digits(text: str, language: str = "en") -> str:
    """What a voice is given that reads digits itself."""
    return normalize(said(text, 0, ()), language, reads_digits=True).text


def words(text: str, language: str = "en") -> str:
    """What a voice is given that reads letters only."""
    return normalize(said(text, 0, ()), language, reads_digits=False).text


NO_VOICE_READS = re.compile(r"[~^‰²³⁴⅛⅝¢]|US")


def _readings() -> list[Any]:
    lines = (Path(__file__).parent / "readings.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [pytest.param(*row, id=f"{row[1]}: {row[2]}") for row in rows]


def test_each_language_names_the_same_signs() -> None:
    """A file of `text/languages` that lacks one would leave it in what is said."""
    locales = [locale for language in LANGUAGES if (locale := locale_of(language))]
    assert len(locales) == len(LANGUAGES)
    assert len({frozenset(locale.symbols) for locale in locales}) == 1
    assert len({frozenset(locale.words.fractions) for locale in locales}) == 1


@pytest.mark.parametrize(("voice", "language", "written", "spoken"), _readings())
def test_readings(voice: str, language: str, written: str, spoken: str) -> None:
    """Both kinds of voices are given what a speaker says; `readings.tsv` says why, by topic."""
    say = {"digits": [digits], "words": [words], "both": [digits, words]}[voice]
    assert {each(written, language) for each in say} == {spoken}
    assert not NO_VOICE_READS.search(digits(written, language))


def test_a_match_of_which_a_rule_fails_is_said_as_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No turn ends with an error of a rule; the log counts, and does not repeat the text."""
    monkeypatch.setattr(abbreviations, "roman", _fail)
    logging.getLogger(normalizer.__name__).removeFilter(_raise)
    assert words("Henry VIII ate 5%.") == "Henry VIII ate five percent."
    assert caplog.messages == ["10 characters are said as written: IndexError"]


NUMBERS = "0 7 21 80 99 100 101 1000 1984 2026 12345 007 3.5 0.25 1,234.56 1,000,000 -5 +3".split()
SIGNS = """
3.50 €|0.99 €|25 €|$5|$3.50|£12.99|¥500|100 $|50 %|12.5 %|5-10 %
12 km|1 km|3.5 kg|60 km/h|25 °C|-3 °C|100 GB|250 ml|16 GB
14:30|9:05|0:00|10:00-17:00|2026-11-25|25/11/2026|5/6/2026
+49 30 1234567|(555) 123-4567|0171 2345678|1/2|3/4|24/7|2½|¾
10-15|5 - 3 = 2|2 + 2|3 × 4|6 ÷ 2|a & b|x < 5|me@example.com|www.example.com|v2.0.1
~5|≈5|±5|≤ 5|≥ 5|5 ≠ 6|5 ‰|√2|10^6|2²|10³|⅛|2⅝|16:9|9:30:15|US$20|25 EUR|$5/h|50¢|5-3=2|5−3
"""
ENGLISH = """
Dr. Smith|Mr. and Mrs. Jones|Prof. Lee|Sgt. Pepper|St. James St. is near.|5th Ave.|vs. them
Jan. 5|Mar 5, 2020|5 May|on Sat. at noon|May 3rd|the 1990s|the '80s|in 2026
Chapter IV|Henry VIII|World War II|Part III|10:30 am|5pm|7:05 p.m.|10:00 am
$3.2 billion|$2M|$5-$10|-$5|5'6"|the 21st|No. 5|#12345|pages 10–20|2 - 3 days
e.g. this|i.e. that|etc.|approx. 5|Q&A|AT&T|B2B|COVID-19
"""
UNREAD = re.compile(r"[\d%€$£¥¢°=+×÷@<>½¾⅛±≤≥≠≈‰√^~²³]")


def inputs(locale: Locale) -> list[str]:
    """Numbers and signs with the marks of a language, and abbreviations of English."""
    marks = str.maketrans({".": locale.decimal, ",": locale.group})
    written = NUMBERS + re.split(r"[|\n]", SIGNS.strip())
    for place, each in enumerate(written):
        if re.search(r"\d[.,]\d", each) and not re.search(r"[a-z]\d|/|@", each):
            written[place] = each.translate(marks)
    return written + (re.split(r"[|\n]", ENGLISH.strip()) if locale.language == "en" else [])


WORDED = [
    language for language in LANGUAGES if (locale := locale_of(language)) and locale.writes_numbers
]
"""Languages with words for numbers; voices of the others read digits."""


@pytest.mark.parametrize("language", WORDED)
def test_nothing_is_left_that_a_voice_cannot_read(language: str) -> None:
    """Every one of sixty inputs or more is given in words to a voice that reads letters only."""
    locale = locale_of(language)
    assert locale is not None
    written = set(inputs(locale))
    assert len(written) >= 60
    assert [each for each in written if UNREAD.search(words(each, language))] == []


def spoken_by_word(text: str, language: str = "en") -> list[str]:
    spoken = normalize(said(text, 100, ()), language, reads_digits=False)
    return [
        "".join(
            character
            for character, offset in zip(spoken.text, spoken.offsets, strict=True)
            if word.char_start <= offset < word.char_end
        ).strip()
        for word in split_words(text, 100)
    ]


def test_offsets_are_those_of_what_is_said() -> None:
    assert spoken_by_word("Pay $42.50 by 2026-11-25 at 5 km.") == [
        "Pay",
        "forty-two dollars and fifty cents",
        "by",
        "November twenty-fifth, twenty twenty-six",
        "at",
        "five",
        "kilometers.",
    ]
    assert spoken_by_word("Louis XIV paid CA$5.50 / month, 16:9.") == [
        "Louis",
        "the fourteenth",
        "paid",
        "five Canadian dollars and fifty cents per",
        "month,",
        "sixteen to nine.",
    ]
    assert spoken_by_word("At 2026-11-25T10:30Z it cost $-5M.") == [
        "At",
        "November twenty-fifth, twenty twenty-six, ten thirty UTC",
        "it",
        "cost",
        "minus five million dollars.",
    ]
    assert spoken_by_word("-3°C, $5", "ja") == ["マイナス 三 度,", "五 ドル"]
    assert spoken_by_word("am 25.11. um 14.30 Uhr", "de") == [
        "am",
        "fünfundzwanzigsten November",
        "um",
        "vierzehn Uhr",
        "dreißig",
    ]


@pytest.mark.parametrize(
    ("language", "unit"),
    [
        ("en", "1-"), ("en", "A1 "), ("en", "$5 "), ("en", "12-34-"), ("de", "am 1. Mai "),
        ("de", "1 "), ("fr", "1 € "), ("ru", "5 руб. "), ("zh", "2^3"), ("hi", "1,00"),
    ],
)  # fmt: skip
def test_time_is_linear(language: str, unit: str) -> None:
    def say(text: str) -> None:
        normalize(Said(text, tuple(range(len(text)))), language, reads_digits=False)

    assert is_linear(say, unit)


def test_pronunciations_stay() -> None:
    """Text with a pronunciation in IPA is not changed, and its place moves with the text."""
    given = Said("$5 1990s $5", tuple(range(11)), ((range(3, 8), "a"),))
    spoken = normalize(given, "en", reads_digits=True)
    assert spoken.text == "5 dollars 1990s 5 dollars"
    assert spoken.ipa == ((range(10, 15), "a"),)


NUMERIC = st.text(st.sampled_from("0123456789 -−–.,:/$€%°CkmhsUr()+@#&=xTe'’½"), max_size=40)


WRITTEN = """
George Mary Louis Part Class Super Bowl World War Lou Ives Levy Lists I I'm V. L XIV LVIII XL IV
Dr. St. Ave. Jan. Mar May Sept. Sun. Nr. No. n° § ~ ± ≥ ^ = / - – : . , ' ’ ° % ‰ € $ US$ £ ¢
um am Uhr h km m² ½ ⅛ ² er º st th s x 0 1 5 9 10 12 16 25 50 345 678 1990 2026 1,000 3.50 3,50
Mio. M Hr. Mo - Fr. dott.ssa Sig. Std. Av. n. Dr EUR USD janvier Mai noviembre www.x.de a@b.c
"""
GROUPS = st.builds(
    "{}{}".format,
    st.sampled_from(("", "$", "am ", "+", "(")),
    st.builds(
        str.join,
        st.sampled_from("-/.: –,"),
        st.lists(st.from_regex(r"\d{1,4}", fullmatch=True), min_size=2, max_size=4),
    ),
)
NUMERALS = st.builds(
    "{} {}".format,
    st.sampled_from(("Mary", "George", "Part", "Bowl", "Class")),
    st.from_regex(r"[IVXLC]{1,3}[a-z.'’]{0,3}", fullmatch=True),
)
PHRASES = st.lists(
    st.sampled_from(WRITTEN.split()).flatmap(lambda each: st.sampled_from([each, f"{each} "])),
    max_size=12,
).map("".join)


@given(
    NUMERIC | GROUPS | NUMERALS | PHRASES | any_text(),
    st.sampled_from((*LANGUAGES, "de-ch", "es-mx")),
    st.booleans(),
)
def test_any_text(text: str, language: str, reads_digits: bool) -> None:
    """No rule fails; offsets never decrease and stay inside; letters-only text has no digits."""
    cleaned = said(text, 7, ())
    spoken = normalize(cleaned, language, reads_digits=reads_digits)
    assert len(spoken.offsets) == len(spoken.text)
    assert list(spoken.offsets) == sorted(spoken.offsets)
    assert set(spoken.offsets) <= set(cleaned.offsets)
    if not reads_digits and language in WORDED:
        assert not set(spoken.text) & set("0123456789")
