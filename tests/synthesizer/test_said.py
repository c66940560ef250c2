"""A context with a lexicon or markup: words of the client's text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.contexts import UNPACED, ContextOutput, collect
from testbed.servers import StartSynthesizer
from voiceagent_tts.clones import CLONE_SUFFIX, CloneBook, SeenClones, VoiceFolder
from voiceagent_tts.core import AudioChunk, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import (
    ContextDone,
    ContextFailed,
    ContextWarned,
    ContextWords,
    Source,
)
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.workers import Supervisor
from voiceagent_tts.word_times.processes import Aligners

MARKUP = replace(UNPACED, has_markup=True)
LEXICON = check_entries({"nginx": "engine x", "New York": "Noo Yawk"})


def near(samples: int) -> Any:
    return pytest.approx(samples, rel=0.02)  # espeak's speech of a text varies in one process


async def spoken(context: Context, text: str, step: int = 1_000) -> ContextOutput:
    for start in range(0, len(text), step):
        context.push_text(text[start : start + step])
    context.finish()
    return await collect(context)


async def heard(context: Context, text: str) -> tuple[np.ndarray, list[WordTimestamp]]:
    """Speak `text`; samples [S] and words."""
    output = await spoken(context, text)
    return np.frombuffer(output.pcm, "<i2"), output.timestamps


@pytest.mark.parametrize("step", [1, 4, 1_000])
async def test_words_are_the_clients(start_synthesizer: StartSynthesizer, step: int) -> None:
    """A multi-word entry is one word; the sound is that of the respelling."""
    synthesizer = await start_synthesizer()
    text = "Use nginx in New York, please."
    options = replace(UNPACED, lexicon=LEXICON)
    said = await spoken(await synthesizer.open(options), text, step)
    assert said.words == ["Use", "nginx", "in", "New York,", "please."]
    plain = await spoken(await synthesizer.open(UNPACED), "Use engine x in Noo Yawk, please.")
    assert said.samples == near(plain.samples)


async def test_the_cut_is_in_the_clients_text(start_synthesizer: StartSynthesizer) -> None:
    """Whatever was heard, both parts joined are the text, and no element is divided."""
    synthesizer = await start_synthesizer()
    text = 'Use nginx. <break time="200ms"/> Code <spell>A7-42X</spell>, then go.'
    context = await synthesizer.open(replace(MARKUP, lexicon=LEXICON))
    _, words = await heard(context, text)
    assert [each.word.text for each in words] == [
        "Use",
        "nginx.",
        "Code",
        "<spell>A7-42X</spell>,",
        "then",
        "go.",
    ]
    for each in words:
        assert each.word.text == text[each.word.char_start : each.word.char_end]
        cut = context.cut(each.start_sample + 1)
        assert cut.text_spoken + cut.text_remaining == text
        assert cut.text_spoken == text[: each.word.char_end]


async def test_an_aligner_follows_what_is_said(start_synthesizer: StartSynthesizer) -> None:
    """Words of the client's text, in order, with a break between them, on the listener's clock."""
    specs = {Source.ONLINE: [Supervisor(WorkerSpec("online"))]}
    synthesizer = await start_synthesizer(
        make_aligners=lambda: Aligners(specs), uses_native_words=False
    )
    text = 'I use nginx every day. <break time="900ms"/> Your code is <spell>A7-42X</spell> today.'
    options = replace(MARKUP, lexicon=LEXICON)
    _, aligned = await heard(await synthesizer.open(options), text)
    native = await start_synthesizer()
    _, exact = await heard(await native.open(options), text)
    assert [each.word for each in aligned] == [each.word for each in exact]
    late = [a.start_sample - e.start_sample for a, e in zip(aligned, exact, strict=True)]
    assert max(map(abs, late)) < ms_to_samples(250), late


async def test_what_is_known_of_a_voice_ends_with_its_recording(
    start_synthesizer: StartSynthesizer, tmp_path: Path
) -> None:
    """How a voice sounds is learnt anew once another recording has its name.

    The embedded engine has a voice of the clone's name, and speaks with it.
    """
    aligners = Aligners({Source.ONLINE: [Supervisor(WorkerSpec("online"))]})
    folder = VoiceFolder(tmp_path)
    synthesizer = await start_synthesizer(
        make_aligners=lambda: aligners,
        clones_of=lambda _: SeenClones(folder),
        uses_native_words=False,
    )
    (name,) = synthesizer.supervisors
    able = replace(synthesizer.supervisors[name].capabilities, clone_width=8)
    synthesizer.voices = CloneBook({name: able}, lambda _: SeenClones(folder))
    options = replace(UNPACED, voice="nova")
    clone = tmp_path / f"nova{CLONE_SUFFIX}"
    clone.write_bytes(b"first")
    first = synthesizer.check(options).voice.recording
    await heard(await synthesizer.open(options), "This is long enough to tell how loud it is.")
    clone.write_bytes(b"another")
    second = synthesizer.check(options).voice.recording
    assert aligners.voice_levels.level_of(first) > 0.0
    assert aligners.voice_levels.level_of(second) == 0.0
    await heard(await synthesizer.open(options), "This is long enough to tell how loud it is.")
    assert aligners.voice_levels.level_of(second) > 0.0


async def test_the_client_writes_an_entry_no_further(start_synthesizer: StartSynthesizer) -> None:
    """What is held back is spoken after the buffer delay, as it is written."""
    synthesizer = await start_synthesizer()
    context = await synthesizer.open(
        ContextOptions("default", "en", max_buffer_delay_ms=50, lexicon=LEXICON)
    )
    context.push_text("Hello there. nginx")
    words: list[str] = []
    async for event in context:
        if isinstance(event, ContextWords):
            words += [each.word.text for each in event.words]
        if "there." in words:
            context.finish()
        if isinstance(event, ContextDone):
            break
    assert words == ["Hello", "there.", "nginx"]


async def test_ipa_that_cannot_be_said_is_a_warning(start_synthesizer: StartSynthesizer) -> None:
    """Once per context, before the audio; the letters are said."""
    synthesizer = await start_synthesizer()
    lexicon = check_entries({"abc": "/ʘʘ/"})
    context = await synthesizer.open(replace(UNPACED, lexicon=lexicon))
    context.push_text("Say abc. Then abc.")
    context.finish()
    codes = [event.code.value async for event in context if isinstance(event, ContextWarned)]
    assert codes == ["ipa_ignored"]


@pytest.mark.parametrize(
    ("language", "spoken_as", "warns"),
    [
        ("es-AR", "es-419", False),
        ("en-AU", "en-gb", True),
        ("fr_CA", "fr", True),
        ("es", "es", False),
    ],
)
async def test_an_accent_that_a_voice_lacks_is_a_warning(
    start_synthesizer: StartSynthesizer, language: str, spoken_as: str, warns: bool
) -> None:
    """The nearest accent speaks; one that the voice has needs no warning."""
    synthesizer = await start_synthesizer()
    context = await synthesizer.open(replace(UNPACED, language=language))
    assert context.request.language == spoken_as
    context.push_text("Hola.")
    context.finish()
    codes = [event.code.value async for event in context if isinstance(event, ContextWarned)]
    assert codes == ["accent_unavailable"] * warns


@pytest.mark.parametrize(
    ("voice", "language", "text", "warns"),
    [
        ("default", None, "مرحبا كيف حالك. كيف حالك اليوم.", True),
        (
            "default",
            None,
            "Cześć, jak się dzisiaj czujesz? Mam nadzieję, że wszystko dobrze.",
            True,
        ),
        ("default", None, "Goedemorgen, hoe gaat het vandaag met u? Mooi weer vandaag.", False),
        ("default", "en", "Hello there. नमस्ते, आप कैसे हैं?", True),
        ("default", "en", "Hello there. Здравствуйте, чем я могу вам помочь?", True),
        ("default", "en", "He said: Guten Tag, wie geht es Ihnen heute?", False),
        ("default", "ru", "Это iPhone. Hello there, my friend.", False),
        ("default", "ja", "東京駅", False),
        ("pl", None, "Cześć, jak się dzisiaj czujesz?", False),
        ("pl+f3", None, "Cześć, jak się dzisiaj czujesz?", False),
    ],
)
async def test_text_that_the_voice_does_not_speak_is_a_warning_or_refused(
    start_synthesizer: StartSynthesizer, voice: str, language: str | None, text: str, warns: bool
) -> None:
    """Once per context; where its client is strict, it ends. A voice of the language may speak."""
    synthesizer = await start_synthesizer()
    for is_strict in (False, True):
        options = replace(UNPACED, voice=voice, language=language, is_strict=is_strict)
        context = await synthesizer.open(options)
        context.push_text(text)
        context.finish()
        events = [event async for event in context]
        codes = [event.code.value for event in events if isinstance(event, ContextWarned)]
        errors = [event.error.code.value for event in events if isinstance(event, ContextFailed)]
        expected = ["language_unavailable"] * warns
        assert (codes, errors) == (([], expected) if is_strict else (expected, []))
        is_spoken = any(isinstance(event, AudioChunk) for event in events)
        assert is_spoken == (not errors)


SILENT = "\u096f"  # the digit nine of Hindi, of which the English voice says nothing


@pytest.mark.parametrize(
    ("text", "options", "is_refused"),
    [
        ("...", {}, False),
        ("![](http://x.y/z.png) &nbsp;", {}, False),
        (SILENT, {}, True),
        (f"... {SILENT}", {}, True),
        (f"{SILENT}. {SILENT}, {SILENT}!", {}, True),
        (f"Hello. {SILENT}", {}, False),
        (f"{SILENT}. Hello.", {}, False),
        (f"[](http://x.y/{SILENT})", {}, False),
        ("Use", {"lexicon": check_entries({"Use": SILENT})}, True),
        ('<break time="0.1s"/>', {}, False),
        ('<break time="0.1s"/>...', {"has_markup": True}, False),
        (f'<break time="0.1s"/>{SILENT}', {"has_markup": True}, True),
        (f'<sub alias="{SILENT}">...</sub>', {"has_markup": True}, True),
        (f'<sub alias="{SILENT}">...</sub>', {}, False),
    ],
)
async def test_a_text_that_its_voice_is_silent_for_is_an_error(
    start_synthesizer: StartSynthesizer, text: str, options: dict[str, Any], is_refused: bool
) -> None:
    """What is said of it decides, not what is written; a text that was spoken in part is none."""
    synthesizer = await start_synthesizer()
    output = await spoken(await synthesizer.open(replace(UNPACED, **options)), text)
    code = getattr(output.error, "code", None)
    assert code == (ErrorCode.TEXT_UNSPEAKABLE if is_refused else None)
    assert output.report.reason == ("error" if is_refused else "complete")
