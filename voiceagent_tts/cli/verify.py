"""`voiceagent-tts verify`: whether a model computes and speaks as it should on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from voiceagent_tts.errors import InvalidRequestError

if TYPE_CHECKING:
    from voiceagent_tts.model.verify import Check, Reference


def verify_model(
    model: str, device: str | None, precision: str | None, reference: Path | None, text: str
) -> bool:
    """Make every check, show them in a table, and say whether all hold.

    Raises:
        InvalidRequestError: the reference is no recording, or a Base model has none.
        CheckpointError: there is no such model.
    """
    heard = None if reference is None else _read_reference(reference, text)
    checks = _checks(model, device, precision, heard)
    console = Console(soft_wrap=True, highlight=False)
    console.print(_table(checks))
    failed = sum(not check.holds for check in checks)
    console.print(
        f"{failed} of {len(checks)} checks fail: this model would not speak as it should."
        if failed
        else f"All {len(checks)} checks hold."
    )
    return not failed


def _read_reference(path: Path, text: str) -> "Reference":
    from voiceagent_tts.audio.reference import read_audio
    from voiceagent_tts.cli.files import read_file

    samples = read_audio(read_file(path))
    import torch

    from voiceagent_tts.model.verify import Reference

    return Reference(torch.from_numpy(samples.copy()), text)


def _checks(
    model: str, device: str | None, precision: str | None, reference: "Reference | None"
) -> "list[Check]":
    import torch

    from voiceagent_tts.cli.models import model_folder
    from voiceagent_tts.model.verify import verify

    if precision not in (None, "float32", "bfloat16", "float16"):
        raise InvalidRequestError(
            f"--precision: expected float32, bfloat16 or float16; got {precision}"
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = getattr(torch, precision or ("float32" if device == "cpu" else "bfloat16"))
    checks: list[Check] = []
    with Console(stderr=True).status("loading") as status:
        for check in verify(model_folder(model), dtype, device, reference):
            checks.append(check)
            status.update(f"{len(checks)} checks made")
    return checks


def _table(checks: "list[Check]") -> Table:
    table = Table("", "what", "expected", "found")
    for check in checks:
        verdict = "[green]ok[/]" if check.holds else "[red]bad[/]"
        table.add_row(verdict, check.claim, check.expected, check.found)
    return table
