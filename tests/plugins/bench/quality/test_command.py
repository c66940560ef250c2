"""`bench quality` on a real server, on recordings with planted errors, and with bad input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from testbed.parity_reference import REFERENCE
from testbed.quality_clips import changed, loud_places, spoken, with_noise_burst, with_repeat
from testbed.scripted_judges import heard, scripted_judge
from testbed.server_process import ServerProcess
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.commands import app
from voiceagent_tts.plugins.bench.quality.clips import Clip
from voiceagent_tts.plugins.bench.quality.speaking import write_clips

SENTENCES = [
    "Please bring the green umbrella back on your way home.",
    "One moment, I am looking it up.",
    "Sure, I can help you with that.",
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


def write(folder: Path, clips: dict[str, Clip]) -> None:
    """Write recordings, each with its text."""
    folder.mkdir()
    for name, clip in clips.items():
        soundfile.write(folder / f"{name}.wav", clip.samples, 24_000)
        (folder / f"{name}.txt").write_text(clip.item.text)


def test_recordings_with_planted_errors_have_their_figures(tmp_path: Path) -> None:
    """A burst, a repetition and a click in one clip each; two wrong words in one transcript."""
    first, second, third = map(spoken, SENTENCES)
    click = third.samples.copy()
    click[loud_places(third, 1)] += 0.2
    write(
        tmp_path / "in",
        {"a": first, "b": with_noise_burst(first, 1.0), "c": with_repeat(second, 0.4, 0.7),
         "d": changed(third, click)},
    )  # fmt: skip
    with scripted_judge() as server:
        server.answers = [
            heard(text)
            for text in (SENTENCES[0], "Please bring the red umbrella um back on your way home.",
                         SENTENCES[1], SENTENCES[2])
        ]  # fmt: skip
        document = run(
            "--recordings", str(tmp_path / "in"), "--transcriber", server.url,
            "--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html"),
        )  # fmt: skip
    words = means(document, "words")
    assert words["wer_percent"] == pytest.approx(100 * 2 / 10 / 4)
    assert words["insertion_percent"] == pytest.approx(100 * 1 / 10 / 4)
    artifacts = means(document, "artifacts")
    assert (artifacts["noise_percent"], artifacts["repetition_percent"]) == (25, 25)
    assert artifacts["silence_percent"] == 0
    assert means(document, "continuity")["click_percent"] >= 25
    page, whole = (tmp_path / "a.html").read_text(), json.loads((tmp_path / "a.json").read_text())
    assert "not run" in page and "<script" not in page
    assert whole["sections"][0]["examples"][0]["heard"].endswith("way home.")
    files = str(tmp_path / "a.json"), str(tmp_path / "a.json")
    compared = CliRunner().invoke(app, ["--compare", *files], catch_exceptions=False).stdout
    assert "wer_percent" in compared and "noise" in compared
    assert "better" not in compared and "worse" not in compared


def test_a_server_is_spoken_to_and_its_recordings_are_kept(
    served: ServerProcess, tmp_path: Path
) -> None:
    """Without a recogniser the sound alone is measured, and what was not run says why."""
    host = served.url.removeprefix("http://")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(SENTENCES[:2]))
    document = run(
        "--target", f"ours=ws://{host}", "--texts", str(texts), "--seeds", "3",
        "--voice", "default,en-us", "--save", str(tmp_path / "kept"),
    )  # fmt: skip
    assert {each["target"] for each in document["sections"]} == {"ours, default", "ours, en-us"}
    assert document["not_run"] == {
        "words": "needs --transcriber",
        "pronunciation": "needs --transcriber",
        "voice": "needs --speaker-model and a reference",
    }
    assert means(document, "artifacts")["artifact_percent"] == 0
    continuity = means(document, "continuity")
    assert continuity["joint_break_percent"] == 0
    assert continuity["stream_distance_db"] < 6
    kept = sorted(path.name for path in (tmp_path / "kept" / "ours--default").glob("*.wav"))
    assert kept == [
        "en-file-000.wav", "en-file-001.wav",
        *(f"en-input-00{number}.wav" for number in range(3)),
    ]  # fmt: skip
    samples, rate_hz = soundfile.read(tmp_path / "kept" / "ours--default" / kept[0])
    assert rate_hz == 24_000 and np.abs(samples).max() > 0.05


def test_the_voice_is_compared_with_a_reference(tmp_path: Path) -> None:
    """Each clip by a speaker encoder; the model has random weights."""
    first = spoken(SENTENCES[0])
    write(tmp_path / "in", {"a": first, "b": spoken(SENTENCES[1])})
    soundfile.write(tmp_path / "reference.wav", first.samples, 24_000)
    model = str(REFERENCE / "base-0b6")
    document = run(
        "--recordings", str(tmp_path / "in"), "--parts", "voice,words",
        "--speaker-model", model, "--reference", str(tmp_path / "reference.wav"),
    )  # fmt: skip
    assert 0.5 < means(document, "voice")["similarity"] <= 1
    assert document["judged_by"]["voice"] == model
    assert document["not_run"] == {"words": "needs --transcriber"}


def test_texts_that_are_not_spoken_are_counted(tmp_path: Path, served: ServerProcess) -> None:
    """An unknown voice fails every text, and the failures are a row of their own."""
    texts = tmp_path / "texts.txt"
    texts.write_text(SENTENCES[0])
    host = served.url.removeprefix("http://")
    document = run("--target", f"ws://{host}", "--texts", str(texts), "--voice", "nobody",
                   "--parts", "continuity")  # fmt: skip
    (section,) = document["sections"]
    assert (section["part"], section["clips"]) == ("failures", 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--parts", "nonsense"), ("--parts", "words"), ("--languages", "xx"),
        ("--transcriber", "nonsense"), ("--kinds", "nonsense"), ("--recordings", "{tmp}"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_with_what_was_expected(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Before anything is spoken."""
    with pytest.raises(InvalidRequestError, match="expected"):
        run(*(each.format(tmp=tmp_path) for each in arguments))


def test_names_of_items_are_safe_as_file_names(tmp_path: Path) -> None:
    """A name from a list cannot leave the folder."""
    clip = spoken(SENTENCES[1])
    write_clips([Clip(type(clip.item)("../../x/y", "t"), clip.samples)], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".._.._x_y.wav"]
