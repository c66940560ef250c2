"""Cleaner keeps what a reader would say aloud, and the origin of each character."""

import unicodedata
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.texts import agent_text, any_text, chunked
from testbed.timing import is_linear
from voiceagent_tts.text import cleaning
from voiceagent_tts.text.cleaning import Cleaner, Speakable, speakable


def spoken(text: str) -> str:
    return speakable(text).spoken


@pytest.mark.parametrize(
    "text",
    [
        "Hello there, how are you?",
        "3.5 and 1,299.50 at example.com for $42.50.",
        "C# ticket #5, a/b, me@example.com, 25 °C, 5 > 3 and 3 < 5, 50% & more.",
        "It's well-known (really); -5 – 10 … “quoted” «cité» „zitiert“.",
        "你好，世界！「はい」ー안녕하세요.",
        "~5 minutes, 2^3, x = 1 + 1, 10€, No. 5, App™, ℃",
    ],
)
def test_what_is_speakable_stays(text: str) -> None:
    assert spoken(text) == text
    assert speakable(text).offsets == tuple(range(len(text)))


SPOKEN = [
    # Markdown marks are skipped, and the structure they give becomes pauses.
    ("**Hello** *dear* __world__ _now_ ~~gone~~", "Hello dear world now gone"),
    ("***both*** un*frigging*believable", "both unfriggingbelievable"),
    ("Use `max_chars` and ``two``", "Use max chars and two"),
    ("# Title\nText", "Title. Text"),
    ("### What now?\nText", "What now? Text"),
    ("> quoted\n> again", "quoted, again"),
    ("- one\n- two\n+ three\n* four", "one. two. three. four"),
    ("- [ ] open\n- [x] done", "open. done"),
    ("1. First\n2. Second", "1. First. 2. Second"),
    ("above\n---\nbelow", "above. below"),
    ("| a | b |\n|---|:-:|\n| 1 | 2 |\n", "a, b. 1, 2"),
    ("```python\nprint(1)\n```\nDone", "print(1). Done"),
    ('see [the docs](https://x.com/a_(b) "t") now', "see the docs now"),
    ("![a cat](c.png) and [![b](i.png)](u)", "a cat and b"),
    ("[a][1] b[^2] [c]", "a b c"),
    ("see https://example.com/x", "see example.com/x"),
    ("Step ①, then ❿. 打开③", "Step 1, then 10. 打开3"),
    ("<https://example.com>", "example.com"),
    (r"\*not\* 5\$", "not 5$"),
    ("__init__ snake_case", "init snake case"),
    ("a<b and c>d, x<b>y</b> <i>z", "a<b and c>d, xy z"),
    ("if a<b\nand c>d", "if a<b, and c>d"),
    ("Hi <your name>, on <date of the visit>.", "Hi your name, on date of the visit."),
    ("<details open>Text {x}.y", "Text x.y"),
    ('x<a href="/">y</a>, x<br />y', "xy, x. y"),
    ("_a_b@c.de_ or `j_d@x.com`", "a_b@c.de or j_d@x.com"),
    ("see https://x.com/a_b or y.io/a_b.", "see x.com/a_b or y.io/a_b."),
    ("yes -- no --- maybe", "yes, no, maybe"),
    # A segment may begin or end between a marker and its partner.
    ("**Hello there", "Hello there"),
    ("and that** is", "and that is"),
    ("more](https://x.com/y) text", "more text"),
    ("`code", "code"),
    ("see [the", "see the"),
    ("| last cell |", "last cell"),
    ("</b> after", "after"),
    # An asterisk between numbers is "times"; elsewhere it is decoration.
    ("2 * 3 and 2*3", "2 × 3 and 2×3"),
    ("a * b", "a b"),
    ("* 3", "3"),
    # Symbols are skipped without joining the words around them; a keycap keeps its digit.
    ("Hi 😊!", "Hi!"),
    ("Hi😊there", "Hi there"),
    ("👩‍👩‍👧 family 🇩🇪 flag 👍🏽 ok ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿.", "family flag ok."),
    ("press 1️⃣ or #️⃣", "press 1 or #"),
    ("✅ one\n✅ two", "one. two"),
    ("■ ▶ ║ ═ ☎ done", "done"),
    ("Settings → Wi-Fi • Advanced", "Settings, Wi-Fi, Advanced"),
    ("H₂O, x₁", "H2O, x1"),
    # An arrow is a pause, and so is the sign between the names of a path through menus.
    ("Settings -> Privacy, a->b ==> c ---> d", "Settings, Privacy, a, b, c, d"),
    ("**File** > **Save As** > `PDF`", "File, Save As, PDF"),
    ("设置 > 隐私", "设置，隐私"),
    ("if revenue > costs, a > B, 5 > 3", "if revenue > costs, a > B, 5 > 3"),
    ("Profit is good if Revenue > Costs.", "Profit is good if Revenue > Costs."),
    ("We see Revenue (net) > Costs in May.", "We see Revenue (net) > Costs in May."),
    ("Run Alpha > Beta Two > Gamma now", "Run Alpha, Beta Two, Gamma now"),
    ("Click Apps > Chrome, Settings > Privacy", "Click Apps, Chrome, Settings, Privacy"),
    ("Unter System > Anzeige", "Unter System, Anzeige"),
    ("Allez dans Sons > Alertes", "Allez dans Sons, Alertes"),
    ("Go to the Apple menu > About", "Go to the Apple menu, About"),
    # A dot that begins a word joins it to no other.
    ("Java ✅ .NET\n.env .5", "Java .NET, .env .5"),
    ("Hi 😊. One 😊 .", "Hi. One."),
    # Control and format characters are removed; white space of every kind is one space.
    ("a\0b\x07c\u200bd\ufeffe\u202ef\u00adg", "abcdefg"),
    ("a\ud83d b\udc00", "a b"),
    ("a\u00a0b\tc\u3000d \u2009 e\r\nf", "a b c d e, f"),
    ("  a  ", "a"),
    ("\ue000private\uffff", "private"),
    # Letters get their plain, composed form.
    ("e\u0301te\u0301", "été"),
    ("Ａ１（ｂ）", "A1（b）"),
    ("𝐇𝐞𝐥𝐥𝐨", "Hello"),
    ("\ufb01ne Ⅷ", "fine VIII"),
    ("① ❷ ❿ ⑮", "1 2 10 15"),
    ("x² ⅛", "x² ⅛"),
    ("ｶﾞｯﾂ", "ガッツ"),
    ("\u1112\u1161\u11ab", "한"),
    ("ㅋㅋ", "ㅋㅋ"),
    # A border without punctuation becomes a mark of the text's script; wrapped prose has none.
    ("one\n\ntwo", "one. two"),
    ("one.\n\ntwo", "one. two"),
    ("“one.”\n\ntwo", "“one.” two"),
    ("one,\n\ntwo", "one, two"),
    ("Red\nBlue", "Red, Blue"),
    ("Red.\nBlue", "Red. Blue"),
    ("赤\n青", "赤，青"),
    (
        "prose that is wrapped at some forty columns\nis read on",
        "prose that is wrapped at some forty columns is read on",
    ),
    ("一\n\n二", "一。二"),
    ("a<br>b", "a. b"),
    # An HTML entity is spoken as the character that it names.
    ("don&#39;t &amp; won&#x27;t", "don't & won't"),
    ("Tom&amp;Jerry&nbsp;go &mdash; fast", "Tom&Jerry go — fast"),
    ("&lt;b&gt;bold&lt;/b&gt;", "bold"),
    ("AT&T; R&D &unknown;", "AT&T; R&D &unknown;"),
    ("&euro; 25 today", "€ 25 today"),
    ("<br>&amp; more", "& more"),
    ("[](url) &pound; 5", "£ 5"),
]
"""What is written, and what is said of it."""


@pytest.mark.parametrize(("text", "expected"), SPOKEN)
def test_what_a_reader_would_say_is_spoken(text: str, expected: str) -> None:
    """Marks are skipped or become pauses, and characters are those that a reader would say."""
    assert spoken(text) == expected


ENTITIES = {
    "€": "&euro;",
    "&": "&amp;",
    "½": "&#xBD;",
    "…": "&hellip;",
    "—": "&mdash;",
    "\u00a0": "&nbsp;",
    "'": "&#39;",
    "5": "&#53;",
}


@given(
    st.lists(st.sampled_from([*ENTITIES, *"ab.-& ", "\n", "**", "<br>", "1. "]), max_size=9),
    st.integers(1, 5),
)
@example(["€", " ", "5"], 2)
def test_an_entity_is_spoken_as_its_character_in_any_part(pieces: list[str], chars: int) -> None:
    """Wherever the entity stands, and wherever the text was divided in it."""
    written = "".join(ENTITIES.get(piece, piece) for piece in pieces)
    cleaner, parts = Cleaner(), list[Speakable]()
    for at in range(0, len(written), chars):
        cleaner.push(written[at : at + chars])
        parts += cleaner.words()
    parts.append(cleaner.finish())
    assert "".join(part.spoken for part in parts) == spoken("".join(pieces))
    assert [offset for part in parts for offset in part.offsets] == [*speakable(written).offsets]


def test_offsets_point_at_the_source_character() -> None:
    text = "**Hi** [you](http://x) a\u0301_b"
    result = speakable(text)
    assert result.spoken == "Hi you á b"
    assert [text[offset] for offset in result.offsets] == list("Hi you a_b")


@settings(deadline=None)
@given(agent_text() | any_text())
def test_offsets_are_valid_and_never_decrease(text: str) -> None:
    result = speakable(text)
    assert len(result.offsets) == len(result.spoken)
    assert list(result.offsets) == sorted(result.offsets)
    assert all(0 <= offset < len(text) for offset in result.offsets)


@pytest.mark.parametrize(
    "text",
    ["...", "👍", "👍 !", "?!", "—", "€ & %", "", "- - -", "…\n\n…"]
    + ["&nbsp;", "&hellip;", "&euro; &#37;", "[](url)", "<br>"],
)
def test_a_text_without_letters_and_digits_is_not_spoken(text: str) -> None:
    """There is nothing to speak in it, for any engine; letters of markup are none."""
    assert spoken(text) == ""
    assert spoken(f"{text} Yes").endswith("Yes")


@settings(deadline=None)
@given((agent_text() | any_text()).flatmap(lambda text: st.tuples(st.just(text), chunked(text))))
@example(
    (
        "Run Alpha > Beta Two > Gamma, Revenue > Costs.",
        [*"Run Alpha > Beta Two > Gamma, Revenue > Costs."],
    )
)
def test_a_text_may_come_in_any_parts(case: tuple[str, list[str]]) -> None:
    """What is spoken, and where it is from, does not depend on how the text was divided."""
    text, deltas = case
    cleaner, parts = Cleaner(), list[Speakable]()
    for delta in deltas:
        cleaner.push(delta)
        parts += cleaner.words()
    parts.append(cleaner.finish())
    whole = speakable(text)
    assert "".join(part.spoken for part in parts) == whole.spoken
    assert tuple(offset for part in parts for offset in part.offsets) == whole.offsets


@settings(deadline=None)
@given(agent_text() | any_text())
def test_nothing_unspeakable_is_spoken(text: str) -> None:
    """No control, format, private or surrogate character, line break or double space remains."""
    result = spoken(text)
    assert not [c for c in result if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn")]
    assert not set(result) & set("`\n\t\r\u2028\u2029\ufffc\ufe0f")
    assert "  " not in result
    assert result == result.strip()


@pytest.mark.parametrize(
    "unit",
    ["*", "[", "(", "<", "`", "_", "#", "|", "~", "\\", " ", "\n", "=", ">"]
    + ["[a](", "![", "](", "<a ", "<!--", '[a](b "', "- ", "|-", "[^", "1*", "_a", "[a]["]
    + ["a\u0301", "\n ", "```\n", "[a](a(b)", "<br ", "https://", "😊", "|:-", "a_", "a_b@"]
    + ["Aa > "],
)  # fmt: skip
def test_time_is_linear(unit: str) -> None:
    """Eight times as many unbalanced markers take about eight times as long."""
    assert is_linear(speakable, unit)
    assert is_linear(lambda text: speakable("x " + text), unit)


def by_the_rules(text: str) -> Speakable:
    """The spoken text, for which every rule is tried."""
    with patch.object(cleaning, "_CLEAN", cleaning.re.compile(r"(?!)")):
        return speakable(text)


def test_each_clean_character_stays_by_the_rules() -> None:
    """No character that is taken as clean is changed by a rule, alone or beside others."""
    characters = [chr(code) for code in range(0x110000)]
    clean = "".join(filter(cleaning._CLEAN.fullmatch, characters))
    assert len(clean) > 30_000
    for text in (clean, "a".join(clean), "가".join(clean)):
        assert by_the_rules(text) == Speakable(text, tuple(range(len(text))))


@settings(max_examples=500)
@given(
    st.lists(
        st.sampled_from(
            [*"aZ1é가好か.,;:!?'\"()/- \n\u0301\u1161·・。，%&$—*_#", "mailto", "http:", "1. "]
        ),
        max_size=12,
    ).map("".join)
)
def test_a_clean_text_stays_by_the_rules(text: str) -> None:
    """A text that is taken as clean is what the rules make of it, with the same offsets."""
    assert speakable(text) == by_the_rules(text)
