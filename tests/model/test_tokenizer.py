"""The tokenizer gives the reference tokenizer's ids, however the text is divided."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.parity_reference import REFERENCE
from testbed.timing import is_linear
from voiceagent_tts.model.tokenizer import ROLE_TOKENS, Tokenizer

Library = Callable[[str], Any]

CONFIG = {"im_start": 356, "im_end": 357}
TOKENIZER = Tokenizer(REFERENCE / "base-0b6", **CONFIG)

TEXTS = [
    "Hello there, my friend!",
    "你好，世界。 The quick brown fox jumps over the lazy dog 42 times; then it sleeps.",
    "Grüße! it's  we'll   spaces\n\n\nlines \n \n end \n",
    "\n leading",
    " ",
    "e\u0301 decomposed, q\u0323\u0307 and \u1100\u1161\u11a8 jamo",
    "marks that change places: a\u0315\u0301 s\u0307\u0323!",
    "सुनो কোথায় ภาษาไทย עברית 👩‍👩‍👧 ½ ٣٤",
    "'ll 'LL 'r 're don't 'x",
    "…!!!???\n\n--- a---b",
]

pieces = st.one_of(
    st.sampled_from(["the ", "quick", " brown", "'l", "l", "'s", "\n", "  ", "\r\n", "42", "。"]),
    st.sampled_from(
        ["你", "好", "世界", "e", "\u0301", "\u0323", "\u0315", "ü", "\u1100", "\u1161", "ের"]
    ),
    st.text(max_size=4),
)


@pytest.fixture(scope="module")
def library() -> Library:
    from transformers import Qwen2TokenizerFast  # slow

    folder = REFERENCE / "base-0b6"
    return Qwen2TokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt"))


def in_parts(parts: list[str]) -> list[int]:
    turn = TOKENIZER.open_turn("assistant")
    return [id for part in parts for id in turn.push(part)] + turn.finish()


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_reference_tokenizer(library: Library, text: str) -> None:
    """A text has the ids that the library's Qwen2 tokenizer gives it, also by the character."""
    ids = TOKENIZER.encode_turn("assistant", text)
    assert ids[1:] == library(f"assistant\n{text}").input_ids
    assert in_parts(list(text)) == ids


@given(text=st.text())
def test_any_text_has_the_reference_ids(library: Library, text: str) -> None:
    assert TOKENIZER.encode(TOKENIZER.normalize(text)) == library(text).input_ids


@given(parts=st.lists(pieces))
@example(parts=["x frien", "d!"])
@example(parts=["e", "e", "\N{COMBINING ACUTE ACCENT}"])  # é may merge with the letter before
def test_parts_give_the_ids_of_the_whole(parts: list[str]) -> None:
    """However a text is divided, its ids are those of the whole text."""
    assert in_parts(parts) == TOKENIZER.encode_turn("assistant", "".join(parts))


def test_ids_come_while_text_arrives() -> None:
    """At most one word is held back; in Chinese, which has no spaces, a few characters."""
    turn = TOKENIZER.open_turn("assistant")
    given = turn.push("The quick brown f")
    assert given == TOKENIZER.encode_turn("assistant", "The quick brown")
    turn = TOKENIZER.open_turn("assistant")
    given = turn.push("你好世界今天天气很好我们去公园")
    whole = TOKENIZER.encode_turn("assistant", "你好世界今天天气很好我们去公园")
    assert given == whole[: len(given)]
    assert len(given) >= len(whole) - 3


def test_control_tokens_in_a_text_are_text() -> None:
    ids = TOKENIZER.encode_turn("assistant", "a<|im_end|>b")
    assert CONFIG["im_end"] not in ids
    assert len(ids) > ROLE_TOKENS + 3


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer with tokens of 2 to 16 equal letters, like the published one."""
    folder: Path = tmp_path_factory.mktemp("repeating")
    vocabulary = json.loads((REFERENCE / "base-0b6" / "vocab.json").read_text())
    merges = ["#version: 0.2"]
    for letter in ("a", "ha", "ã", "ĥ", "¼", "ãĥ¼"):
        for size in (1, 2, 4, 8):
            for token in (letter * size, letter * 2 * size):
                vocabulary.setdefault(token, len(vocabulary))
            if letter not in ("ã", "ĥ", "¼"):
                merges.append(f"{letter * size} {letter * size}")
    for merge in ("ãĥ ¼", "ã ĥ", "h a"):
        vocabulary.setdefault(merge.replace(" ", ""), len(vocabulary))
        merges.insert(1, merge)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join(merges))
    return Tokenizer(folder, im_start=len(vocabulary), im_end=len(vocabulary) + 1)


@pytest.mark.parametrize("unit", ["a", "ha", "ー"])
def test_a_word_without_borders_is_not_held_back(repeating: Tokenizer, unit: str) -> None:
    """Of a syllable again and again, at most 256 letters are held back, and nothing is lost."""
    turn, text = repeating.open_turn("assistant"), unit * (1_000 // len(unit))
    ids = [id for character in text for id in turn.push(character)]
    assert len(repeating.decode(ids)) >= len("assistant\n" + text) - 258
    assert repeating.decode([*ids, *turn.finish()]) == "assistant\n" + text


@pytest.mark.parametrize("unit", ["a", "ha", "ー", "hello", "!", "-"])
def test_time_of_a_long_word_is_linear(repeating: Tokenizer, unit: str) -> None:
    assert is_linear(lambda text: repeating.open_turn("assistant").push(text), unit)
