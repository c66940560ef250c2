"""What is spoken: committed texts, Seed-TTS's test sets, lines of a file, short inputs, or folders.

A Seed-TTS `meta.lst` has lines of `NAME|REFERENCE_TEXT|REFERENCE.wav|TEXT[|RECORDING.wav]`; paths
are relative to the file. Source: BytedanceSpeech/seed-tts-eval, README and `run_wer.py`.
"""

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.quality.clips import Item
from voiceagent_tts.plugins.bench.texts import LANGUAGES, Text, choose_texts, texts_in

PLAIN_KINDS = ("short", "menu", "blurb", "paragraph")
"""Kinds whose words a recogniser writes as the text does; numbers are tested as pronunciation."""
AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
_META_FIELDS = (4, 5)
AGENT = "agent"
"""Name of the set of sixty sentences of an English agent, in six kinds."""


def items_of(source: str, languages: Sequence[str], kinds: Sequence[str]) -> list[Item]:
    """The items of a set.

    Args:
        source: `texts` or `agent` for a committed set, a `meta.lst`, or a file with one text in
            each line.
        languages: languages of `texts`; the first is that of a file.
        kinds: kinds of the committed set. Default: all, of `texts` all but numbers and code-mixed.

    Raises:
        InvalidRequestError: a language or kind is unknown, or the file has no such content.
        OSError: the file cannot be read.
    """
    language = languages[0] if languages else "en"
    if source == "texts":
        texts = choose_texts(languages, kinds or PLAIN_KINDS)
    elif source == AGENT:
        texts = _agent_texts(kinds)
    elif source.endswith(".lst"):
        return _seed_tts(Path(source), language)
    else:
        texts = texts_in(Path(source), language)
    return [
        Item(f"{text.language}-{text.kind}-{place:03}", text.text, text.language, text.kind)
        for place, text in enumerate(texts)
    ]


def short_inputs(languages: Sequence[str], seeds: int) -> list[Item]:
    """`seeds` inputs of each language, each with a seed of its own; the texts go around."""
    texts = tomllib.loads(Path(__file__).with_name("short_inputs.toml").read_text("utf-8"))
    return [
        Item(f"{language}-input-{seed:03}", of[seed % len(of)], language, "input", seed=seed)
        for language in _known(languages)
        for of in [texts[language]]
        for seed in range(seeds)
    ]


def pronunciations(languages: Sequence[str]) -> list[Item]:
    """The committed sentences with numbers, dates and names, and their accepted transcripts."""
    data = tomllib.loads(Path(__file__).with_name("pronunciation.toml").read_text("utf-8"))
    return [
        Item(f"{language}-{kind}-{place:03}", row["text"], language, kind,
             accepted=tuple(row["accepted"]))
        for language in _known(languages) if language in data
        for kind, rows in data[language].items()
        for place, row in enumerate(rows)
    ]  # fmt: skip


def recordings_in(folder: Path, items: Iterable[Item], language: str) -> list[tuple[Item, Path]]:
    """The recordings of items, by their names; or, of a folder with `NAME.txt` files, all of them.

    Raises:
        InvalidRequestError: there is none.
    """
    files = {path.stem: path for path in sorted(folder.glob("*")) if path.suffix in AUDIO_SUFFIXES}
    texts = {name: path.with_suffix(".txt") for name, path in files.items()}
    written = [
        (Item(name, text.read_text("utf-8").strip(), language, "recording"), files[name])
        for name, text in texts.items()
        if text.exists()
    ]
    found = written or [(item, files[item.name]) for item in items if item.name in files]
    if not found:
        raise _invalid(
            f"recordings in {folder} named as items of the set, or each with its text in NAME.txt",
            f"{len(files)} others",
        )
    return found


def _agent_texts(kinds: Sequence[str]) -> list[Text]:
    """The sentences of an agent; errors as for `items_of`."""
    data = tomllib.loads(Path(__file__).with_name("agent.toml").read_text("utf-8"))
    if unknown := set(kinds) - set(data):
        raise _invalid(f"kinds of {', '.join(data)}", ", ".join(sorted(unknown)))
    return [Text("en", kind, text) for kind in kinds or data for text in data[kind]]


def _seed_tts(path: Path, language: str) -> list[Item]:
    items: list[Item] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        fields = line.strip().split("|")
        if line.strip() and len(fields) not in _META_FIELDS:
            raise _invalid(f"4 or 5 fields in {path}, line {number}", str(len(fields)))
        if line.strip():
            name, spoken, reference, text = fields[:4]
            items.append(
                Item(name.removesuffix(".wav"), text, language, "seed-tts",
                     path.parent / reference, spoken)
            )  # fmt: skip
    if not items:
        raise _invalid(f"lines in {path}", "none")
    return items


def _known(languages: Sequence[str]) -> Sequence[str]:
    if unknown := set(languages) - set(LANGUAGES):
        raise _invalid(f"languages of {', '.join(LANGUAGES)}", ", ".join(sorted(unknown)))
    return languages or LANGUAGES


def _invalid(expected: str, got: str) -> InvalidRequestError:
    return InvalidRequestError(f"expected {expected}; got {got}")
