"""The tags of markup, as far as they are written as documented."""

import pytest

from testbed.timing import fastest_s
from voiceagent_tts.text.entries import UNDECIDED
from voiceagent_tts.text.markup import MAX_BREAK_MS, MAX_ELEMENT_CHARS, Tag, match_tag, phoneme


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ('<break time="300ms"/>', 7_200),
        ("<break time='1.5s' />", 36_000),
        ('<BREAK TIME=".5s">', 12_000),
        ('<break strength="weak" time="0s"/>', 0),
        ('<break time="11s"/>', MAX_BREAK_MS * 24),
        ('<break time="999999999s"/>', MAX_BREAK_MS * 24),
    ],
)
def test_a_break_is_silence(text: str, samples: int) -> None:
    """In milliseconds or seconds, at most ten of them."""
    assert match_tag(text, 0) == Tag(len(text), pause_samples=samples)


@pytest.mark.parametrize(
    ("text", "said", "ipa"),
    [
        ("<spell>A7-42X</spell>", "A-7, 4 2 X", None),
        ("<SPELL>a</spell >", "A", None),
        ("<spell>!</spell>", "", None),
        ('<say-as interpret-as="characters">ab</say-as>', "A-B", None),
        ("<say-as interpret-as='telephone'>5551234567</say-as>", "5 5 5, 1 2 3, 4 5 6 7", None),
        ('<sub alias="World Wide Web">WWW</sub>', "World Wide Web", None),
        ('<phoneme alphabet="ipa" ph="təˈmɑːtəʊ">tomato</phoneme>', "tomato", "təˈmɑːtəʊ"),
        ("<<t|ə|m|ˈ|ɑ|t|əʊ>>", "təmɑtəʊ", "təmˈɑtəʊ"),
        ("<<n|uː>>", "nu", "nuː"),
        ("<speak>", "", None),
        ("</speak>", "", None),
        ("</spell>", "", None),
    ],
)
def test_an_element_is_said(text: str, said: str, ipa: str | None) -> None:
    """Once its closing tag is there."""
    assert match_tag(f"{text} more", 0) == Tag(len(text), said, ipa)
    for end in range(1, len(text)):
        assert match_tag(text[:end], 0) is UNDECIDED, text[:end]


def test_a_word_and_its_ipa_become_an_element() -> None:
    """Unless a character of theirs would end it."""
    element = phoneme("tomato", "təˈmɑːtəʊ ")
    assert element == '<phoneme alphabet="ipa" ph="təˈmɑːtəʊ">tomato</phoneme>'
    for word, ipa in [("tomato", ""), ("tomato", 'a"b'), ("a<b", "a"), ("tomato", "a" * 200)]:
        assert phoneme(word, ipa) is None


@pytest.mark.parametrize(
    "text",
    [
        "<3",
        "<<a||b>>",
        "< break",
        "<b>",
        '<emotion value="sad"/>',
        '<break time="soon"/>',
        '<break time="1s" <',
        "<spell>a<b>",
        '<spell>a<break time="1s"/>',
        '<say-as interpret-as="date">1</say-as>',
        '<phoneme alphabet="x-sampa" ph="t">t</phoneme>',
        "<sub>WWW</sub>",
        f"<spell>{'1' * MAX_ELEMENT_CHARS}",
        f"<break {' ' * MAX_ELEMENT_CHARS}",
    ],
)
def test_anything_else_is_text(text: str) -> None:
    """Unknown, malformed, nested or endless tags are spoken as a text without markup is."""
    assert match_tag(text, 0) is None


def test_the_time_is_linear_in_the_tags() -> None:
    """An opening tag looks no further than an element may reach, however long the text is."""

    def taken_s(text: str) -> float:
        return fastest_s(lambda: [match_tag(text, 0) for _ in range(20)])

    begun = "<spell></spell "
    assert taken_s(begun * 50_000) < 20 * taken_s(begun * 50)
