"""`bench quality` on a real server, on recordings with a known transcript, and with bad input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from testbed.known_speech import espeak
from testbed.scripted_judges import heard, scripted_judge
from testbed.server_process import ServerProcess
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.commands import app
from voiceagent_tts.plugins.bench.quality.measures import Clip
from voiceagent_tts.plugins.bench.quality.speaking import write_clips
from voiceagent_tts.plugins.bench.quality.test_sets import Item

SENTENCES = [
    "Please bring the green umbrella back on your way home.",
    "One moment, I am looking it up.",
]


def run(*arguments: str) -> dict[str, Any]:
    """Run `voiceagent-tts bench quality`; the object of its last line."""
    result = CliRunner().invoke(app, ["quality", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def means(document: dict[str, Any], part: str) -> dict[str, float]:
    """The means of a part's first section."""
    (section, *_) = [each for each in document["sections"] if each["part"] == part]
    return {name: of["mean"] for name, of in section["measures"].items()}


def test_recordings_with_planted_errors_have_their_figures(tmp_path: Path) -> None:
    """Two wrong words in one transcript of two, in the line, the document and the page."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name, text in zip("ab", SENTENCES, strict=True):
        soundfile.write(folder / f"{name}.wav", pcm_to_float(espeak(text, "en", "f2").pcm), 24_000)
        (folder / f"{name}.txt").write_text(text)
    with scripted_judge() as server:
        server.answers = [
            heard("Please bring the red umbrella um back on your way home."), heard(SENTENCES[1]),
        ]  # fmt: skip
        document = run(
            "--recordings", str(folder), "--transcriber", server.url,
            "--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html"),
        )  # fmt: skip
    words = means(document, "words")
    assert words["wer_percent"] == pytest.approx(100 * 2 / 10 / 2)
    assert words["insertion_percent"] == pytest.approx(100 * 1 / 10 / 2)
    page, whole = (tmp_path / "a.html").read_text(), json.loads((tmp_path / "a.json").read_text())
    assert "WER" in page and "<script" not in page
    assert whole["sections"][0]["examples"][0]["heard"].endswith("way home.")


def test_a_server_is_spoken_to_and_its_recordings_are_kept(
    served: ServerProcess, tmp_path: Path
) -> None:
    """Each voice is a target of its own, and what is kept is what the recogniser got."""
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(SENTENCES))
    with scripted_judge() as judge:
        judge.answers = [heard(text) for text in SENTENCES] * 2
        document = run(
            "--target", f"ours=ws://{served.url.removeprefix('http://')}", "--texts", str(texts),
            "--voice", "default,en-us", "--together", "1",
            "--transcriber", f'{judge.url}{{"model": "secret"}}', "--save", str(tmp_path / "kept"),
        )  # fmt: skip
        assert document["judged_by"] == judge.url
    assert {each["target"] for each in document["sections"]} == {"ours, default", "ours, en-us"}
    assert means(document, "words")["wer_percent"] == 0
    kept = sorted((tmp_path / "kept" / "ours--default").glob("*.wav"))
    assert [path.name for path in kept] == ["en-file-000.wav", "en-file-001.wav"]
    samples, rate_hz = soundfile.read(kept[0])
    assert rate_hz == 24_000 and np.abs(samples).max() > 0.05


def test_texts_that_are_not_spoken_are_counted(tmp_path: Path, served: ServerProcess) -> None:
    """An unknown voice fails every text, and the failures are a row of their own."""
    texts = tmp_path / "texts.txt"
    texts.write_text(SENTENCES[0])
    host = served.url.removeprefix("http://")
    document = run("--target", f"ws://{host}", "--texts", str(texts), "--voice", "nobody",
                   "--transcriber", "http://127.0.0.1:9")  # fmt: skip
    (section,) = document["sections"]
    assert (section["part"], section["clips"]) == ("failures", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--languages", "xx"),
        ("--transcriber", "nonsense"), ("--kinds", "nonsense"), ("--recordings", "{tmp}"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_with_what_was_expected(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Before anything is spoken."""
    with pytest.raises(InvalidRequestError, match="expected"):
        run(
            "--transcriber",
            "http://127.0.0.1:9",
            *(each.format(tmp=tmp_path) for each in arguments),
        )


def test_names_of_items_are_safe_as_file_names(tmp_path: Path) -> None:
    """A name from a list cannot leave the folder."""
    write_clips([Clip(Item("../../x/y", "t"), np.zeros(9, np.float32))], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".._.._x_y.wav"]
