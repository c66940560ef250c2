"""`voiceagent-tts verify`: check that a model or aligner works correctly on this machine."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

from voiceagent_tts.core import AudioChunk, WordTimestamp
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.hub import fetch_model
from voiceagent_tts.model.checkpoint import find_device
from voiceagent_tts.plugins.checks import verify
from voiceagent_tts.plugins.checks import verify_aligner as of_aligner
from voiceagent_tts.plugins.checks.verify import Check, Reference
from voiceagent_tts.plugins.checks.verify_aligner import TEXTS, KnownSpeech
from voiceagent_tts.plugins.forced.load import Precision
from voiceagent_tts.plugins.forced.prompt import Clip
from voiceagent_tts.plugins.recordings.file_reader import read_audio_file

if TYPE_CHECKING:
    from voiceagent_tts.synthesizer.synthesizer import Synthesizer

_CPU_ONLY = ("int8", "auto")


def verify_model(
    model: str, device: str | None, precision: str | None, reference: Path | None, text: str
) -> bool:
    """Check a speech model, print all results as a table, and return whether all passed.

    Raises:
        InvalidRequestError: the reference is not a recording, or is missing for a Base model.
        CheckpointError: the model is not found.
    """
    recording = None if reference is None else _read_reference(reference, text)
    return _print_results(
        _check_model(model, device, precision, recording), "this model does not work correctly"
    )


def verify_aligner(aligner: str, device: str | None, precision: str | None) -> bool:
    """Check a forced aligner on the embedded voice, whose word times are known; print the results.

    Raises:
        CheckpointError: the model is not found.
        EngineError: the embedded voice cannot speak.
    """
    checked, speak = _checked_precision(precision), lambda: asyncio.run(_known_speech())
    checks = of_aligner.verify(fetch_model(aligner), device, checked, speak)
    return _print_results(_collect(checks), "this aligner does not work correctly")


def _print_results(checks: list[Check], conclusion: str) -> bool:
    """Print the results and, if any check failed, the conclusion; return whether all passed."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(_table(checks))
    failed = sum(not check.holds for check in checks)
    console.print(
        f"{failed} of {len(checks)} checks failed: {conclusion} on this machine."
        if failed
        else f"All {len(checks)} checks passed."
    )
    return not failed


async def _known_speech() -> list[KnownSpeech]:
    """Speak the text of every language with the embedded voice, which reports its own times."""
    # Imported here, because checks of a model need no server.
    from voiceagent_tts.seam.engine_kind import WorkerSpec
    from voiceagent_tts.synthesizer.synthesizer import Synthesizer
    from voiceagent_tts.synthesizer.workers import Supervisor

    synthesizer = Synthesizer({"espeak": Supervisor(WorkerSpec("espeak"))})
    await synthesizer.start()
    try:
        return [await _spoken(synthesizer, text, language) for language, text in TEXTS.items()]
    finally:
        await synthesizer.close()


async def _spoken(synthesizer: "Synthesizer", text: str, language: str) -> KnownSpeech:
    from voiceagent_tts.synthesizer.events import ContextFailed, ContextWords
    from voiceagent_tts.synthesizer.options import ContextOptions

    pcm, truth = bytearray(), list[WordTimestamp]()
    context = await synthesizer.open(ContextOptions(language=language, max_lead_s=0))
    context.push_text(text)
    context.finish()
    async for event in context:
        match event:
            case AudioChunk():
                pcm += event.pcm
            case ContextWords(words):
                truth += words
            case ContextFailed():
                raise event.error
            case _:
                pass
    clip = Clip(tuple(timestamp.word for timestamp in truth), bytes(pcm), language)
    return KnownSpeech(clip, tuple(truth))


def _read_reference(path: Path, text: str) -> Reference:
    return Reference(torch.from_numpy(read_audio_file(path).copy()), text)


def _check_model(
    model: str, device: str | None, precision: str | None, reference: Reference | None
) -> list[Check]:
    place = find_device(device)
    if place.type == "cpu" and precision in _CPU_ONLY:
        dtype, checked = torch.float32, precision
    else:
        best = "float32" if place.type == "cpu" else "bfloat16"
        checked = _checked_precision(precision) or best
        dtype = getattr(torch, checked)
    return _collect(verify.verify(fetch_model(model), dtype, place, reference, checked))


def _checked_precision(name: str | None) -> Precision | None:
    if name not in (None, "float32", "bfloat16", "float16"):
        raise InvalidRequestError(
            f"--precision: expected float32, bfloat16 or float16, or for a speech model on a CPU "
            f"{', '.join(_CPU_ONLY)}; got {name}"
        )
    return name


def _collect(results: Iterator[Check]) -> list[Check]:
    """Run every check, and show the progress."""
    checks: list[Check] = []
    with Console(stderr=True).status("loading") as status:
        for check in results:
            checks.append(check)
            status.update(f"{len(checks)} checks done")
    return checks


def _table(checks: list[Check]) -> Table:
    table = Table("", "check", "expected", "found")
    for check in checks:
        verdict = "[green]ok[/]" if check.holds else "[red]bad[/]"
        table.add_row(verdict, check.claim, check.expected, check.found)
    return table
