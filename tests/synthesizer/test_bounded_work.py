"""What one client sends keeps no other waiting: the event loop works on it in small steps."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from testbed.loop_work import loop_work
from testbed.servers import StartSynthesizer
from testbed.speechless import SpeechlessProxy
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.plugins.cache.caching_worker import CachingProxy
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.synthesizer.events import ContextDone, DoneReason
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.text.language import detect_language

CHARS = 20_000
MOST_CALLS = 40_000
"""Calls in one iteration of the loop: about 10 ms. When a text was read as a whole, they were
300,000 to 30,000,000."""
MOST_BYTES = 200_000
"""Bytes and characters that functions return in one iteration: well below a millisecond. When each
word was cut out of a copy of all text, they were 2,500,000."""

Lexicon = Mapping[str, object]
_SCRIPTS = {
    "latin": "words of a text ",
    "han": "汉字",
    "kana": "かなカナ",
    "hangul": "한국어 ",
    "thai": "ภาษาไทย",
    "arabic": "كلمات ",
    "devanagari": "शब्द ",
    "cyrillic": "слова ",
    "ligatures": "ﷺ ",
    "wide": "ＡＢＣ ",
    "digits": "1234567890 ",
    "emoji": "👩‍👧 ",
    "joined": "e\u0301\u0301 ",
}
_MARKS = ("", ". ", "! ", "。", ", ", "\n", "\n\n", "… ", ": ")
_STRUCTURES = (
    *("# a\n", "- a\n", "1. a\n", "> a\n", "|a|b|\n", "```\na\n", "[a](b) ", "https://a.b/c "),
    *("a@b.cd ", "[", "<a>b</a> ", "&amp; ", "**a** ", "Dr. ", "5:30 ", "$3.50 ", "!?", "  "),
    *('"a." ', 'a.""""" '),
)
_TAGS = (
    *(f'<sub alias="{"b" * 100}">a</sub> ', '<break time="1ms"/>', "<", "<spell>abc</spell>"),
    *("<<t|ə>> ", "<speak><sub ", '<phoneme ph="'),
)
_LEXICONS: dict[str, tuple[str, Lexicon]] = {
    "said at length": ("a ", {"a": {"say": "b" * 200, "ipa": "a" * 200}}),
    "respelled": ("a ", {"a": "bcd " * 49}),
    "kana": ("あ", {"あ" * length: "b" * 200 for length in range(1, 101)}),
    "prefixes": ("a b ", {"A b " * length + "c": "b" for length in range(1, 24)}),
    "cases": ("a ", {"A " * length + "A": "b" for length in range(1, 49)}),
    "long": ("ab", {f"{number:03}" + "ﷺ" * 97: "b" for number in range(500)}),
    "many": ("w123 ", {f"w{number}": f"x{number}" for number in range(500)}),
    "undecided": ("a " * 30 + "b ", {"a " * 40: "b"}),
}


def kinds() -> Iterator[tuple[str, str, bool, Lexicon]]:
    """Sixty kinds of text: a name, 20,000 characters, whether they are markup, and a lexicon."""
    for name, words in _SCRIPTS.items():
        yield name, words, False, {}
        yield f"{name} in short sentences", f"{words[:4].strip()}. ", False, {}
    for mark in _MARKS:
        yield f"a letter and {mark!r}", f"a{mark}", False, {}
    for structure in _STRUCTURES:
        yield structure, structure, False, {}
    for tag in _TAGS:
        yield tag, tag, True, {}
    for name, (words, lexicon) in _LEXICONS.items():
        yield f"lexicon: {name}", words, False, lexicon


KINDS = {name: (words, markup, lexicon) for name, words, markup, lexicon in kinds()}


SPREAD = ("han", "cyrillic", "emoji", "ligatures", "a letter and ', '", "**a** ", "<<t|ə>> ")
"""Kinds that are read to the end in every run; all others in a thorough one."""
SAID_TOO_LONG = ("lexicon: said at length", "lexicon: respelled")
"""Kinds of which more is said than may wait to be spoken, and which end with `text_too_long`."""
TURNS = 12
"""Iterations of the loop after a message, in which its text is read."""


async def _send(
    synthesizer: Synthesizer, words: str, *, has_markup: bool, lexicon: Lexicon
) -> None:
    """Send a text as one message, have it read for a while, and cancel it."""
    options = ContextOptions(lexicon=check_entries(lexicon), has_markup=has_markup)
    context = await synthesizer.open(options)
    context.push_text((words * CHARS)[:CHARS])
    context.finish()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    context.abandon()


async def _read_whole(
    synthesizer: Synthesizer,
    words: str,
    *,
    has_markup: bool,
    lexicon: Lexicon,
    chars: int = CHARS,
) -> DoneReason:
    """Send a text as one message, and have all of it read; return how its context ended."""
    options = ContextOptions(
        lexicon=check_entries(lexicon), has_markup=has_markup, max_lead_s=0, language="en"
    )
    context = await synthesizer.open(options)
    context.push_text((words * chars)[:chars])
    context.finish()
    (done,) = [event async for event in context if isinstance(event, ContextDone)]
    return done.reason


@pytest.fixture(autouse=True, scope="module")
def _languages() -> None:
    """What tells languages is loaded, as a server does at its start."""
    detect_language("Hello.", None)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in SPREAD else pytest.mark.thorough) for k in KINDS]
)
async def test_no_turn_is_long_until_the_end_of_a_text(
    kind: str, start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in the middle of a text, and not at its end, of which the voice says nothing."""
    words, has_markup, lexicon = KINDS[kind]
    synthesizer = await start_synthesizer()
    synthesizer.proxy = SpeechlessProxy(PhraseCache(10e6, 60.0, 2))
    with loop_work(monkeypatch) as work:
        await asyncio.sleep(0)
        reason = await _read_whole(synthesizer, words, has_markup=has_markup, lexicon=lexicon)
    assert reason == ("error" if kind in SAID_TOO_LONG else "complete")
    assert work.most <= MOST_CALLS and work.most_bytes <= MOST_BYTES


async def test_parts_that_are_said_at_length_are_all_spoken(
    start_synthesizer: StartSynthesizer,
) -> None:
    """A segment of readings has many parts; those not sent yet keep no engine waiting."""
    synthesizer = await start_synthesizer()
    synthesizer.proxy = SpeechlessProxy(PhraseCache(10e6, 60.0, 2))
    words, lexicon = _LEXICONS["respelled"]
    reason = await _read_whole(
        synthesizer, words, has_markup=False, lexicon=lexicon, chars=len(words) * 60
    )
    assert reason == "complete"


async def test_no_text_makes_a_long_turn_of_the_loop(
    start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever 20,000 characters say: they are read step by step, and linear in their length."""
    assert len(KINDS) >= 60
    synthesizer = await start_synthesizer()
    synthesizer.proxy = CachingProxy(PhraseCache(10e6, 60.0, 2))
    most: dict[str, tuple[int, int]] = {}
    for name, (words, has_markup, lexicon) in KINDS.items():
        with loop_work(monkeypatch) as work:
            await asyncio.sleep(0)
            await _send(synthesizer, words, has_markup=has_markup, lexicon=lexicon)
        if work.most > MOST_CALLS or work.most_bytes > MOST_BYTES:
            most[name] = (work.most, work.most_bytes)
    assert most == {}
