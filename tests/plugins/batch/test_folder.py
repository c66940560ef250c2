"""`voiceagent-tts batch` against a real server with the embedded voice."""

import asyncio
import json
import os
import re
import signal
import sys
from itertools import islice
from pathlib import Path

import pytest
import soundfile

from testbed.agent_text import agent_sentences
from testbed.command_line import Command, CommandHere, FullDisk, check_ctrl_c, finished, start
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, worker_of
from testbed.waiting import until
from voiceagent_tts.plugins.batch.folder import sections_of
from voiceagent_tts.text.words import split_words

CHAPTERS = {
    "one.txt": "Hello there. How can I help you today?",
    "two.md": "# Two\n\nThis is **the second** chapter.",
    "three.TXT": "A third one.",
}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with three chapters and a file that is not a text."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in CHAPTERS.items():
        (folder / name).write_text(text, "utf-8")
    (folder / "cover.jpg").write_bytes(b"\xff\xd8")
    return folder


async def test_every_text_becomes_sound_and_words(
    texts: Path, served: ServerProcess, command: Command, tmp_path: Path
) -> None:
    """Each chapter becomes an audio file and a file of its words, verbatim; one line sums up."""
    argv = ("batch", "texts", "-o", "wavs", "--words", "--url", served.websocket_url)
    outcome = await command(*argv)
    assert (outcome.status, outcome.output) == (0, ""), outcome.errors
    assert re.fullmatch(
        r"ignored texts/cover\.jpg: expected \.txt or \.md\n"
        r"3 spoken \(0 min \d+ s of sound\), 0 finished before, 0 skipped\n",
        outcome.errors,
    )
    for name, text in CHAPTERS.items():
        stem = Path(name).stem
        information = soundfile.info(tmp_path / "wavs" / f"{stem}.wav")
        assert (information.samplerate, information.channels) == (24_000, 1)
        words = json.loads((tmp_path / "wavs" / f"{stem}.json").read_text())["words"]
        assert [word["word"] for word in words] == [word.text for word in split_words(text)]
        assert words[-1]["start_s"] < information.duration
    assert len(list((tmp_path / "wavs").iterdir())) == 6


async def test_words_have_the_times_that_were_found_at_the_end(
    texts: Path, start_server: StartServer, command: Command, tmp_path: Path
) -> None:
    """Where an aligner finds the words, the first of them leave the server by an estimate."""
    server = await start_server(throttle={"without_words": True}, aligner="online")
    argv = ("batch", "texts", "-o", "wavs", "--words", "--url", server.websocket_url)
    outcome = await command(*argv)
    assert outcome.status == 0, outcome.errors
    words = json.loads((tmp_path / "wavs" / "one.json").read_text())["words"]
    assert all(word["exact"] and word["end_s"] > word["start_s"] for word in words)


@pytest.mark.parametrize(("name", "kind"), [("flac", "FLAC"), ("ogg", "OGG")])
def test_sound_has_the_format_asked_for(
    name: str,
    kind: str,
    texts: Path,
    served: ServerProcess,
    command_here: CommandHere,
    tmp_path: Path,
) -> None:
    """Compressed files state their duration; without --words there are no words files."""
    argv = ("batch", "texts", "-o", "out", "--format", name, "--url", served.websocket_url)
    assert command_here(*argv).status == 0
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [f"{stem}.{name}" for stem in ("one", "three", "two")]
    for file in files:
        information = soundfile.info(file)
        assert information.format == kind
        assert 0.5 < information.duration < 10


async def test_a_server_is_started_where_none_is_named(
    texts: Path, command: Command, tmp_path: Path
) -> None:
    """Without --url, `batch` starts a server of its own."""
    outcome = await command("batch", "texts", "-o", "wavs")
    assert outcome.status == 0, outcome.errors
    assert len(list((tmp_path / "wavs").iterdir())) == 3


def test_what_is_finished_stays_as_it_is(
    texts: Path, served: ServerProcess, command_here: CommandHere, tmp_path: Path
) -> None:
    """A second run speaks the missing texts; a third with --force speaks all of them."""
    (tmp_path / "wavs").mkdir()
    finished_before = tmp_path / "wavs" / "two.wav"
    finished_before.write_bytes(b"of another voice")
    argv = ("batch", "texts", "-o", "wavs", "--url", served.websocket_url)
    outcome = command_here(*argv)
    assert outcome.status == 0
    assert outcome.errors.splitlines()[-1].startswith("2 spoken")
    assert "1 finished before" in outcome.errors
    assert finished_before.read_bytes() == b"of another voice"
    assert "\n0 spoken" in command_here(*argv).errors
    assert "\n3 spoken" in command_here(*argv, "--force").errors
    assert soundfile.info(finished_before).duration > 0.5


async def test_a_crash_leaves_whole_files_only(
    texts: Path, start_server: StartServer, command: Command, tmp_path: Path
) -> None:
    """After kill -9 every file is complete, and the next run speaks the missing texts."""
    server = await start_server(throttle={"rtf": 0.1})
    (texts / "long.txt").write_text(" ".join(islice(agent_sentences(1), 5)))
    argv = ("batch", "texts", "-o", "wavs", "--url", server.websocket_url)
    process = await start(*argv, folder=tmp_path)
    while not list((tmp_path / "wavs").glob("[!.]*.wav")):
        await asyncio.sleep(0.02)
    process.kill()
    await finished(process)
    whole = {file.name: file.read_bytes() for file in (tmp_path / "wavs").glob("[!.]*.wav")}
    assert 0 < len(whole) < 4
    last = (await command(*argv)).errors.splitlines()[-1]
    assert last.startswith(f"{4 - len(whole)} spoken")
    for name, data in whole.items():
        assert (tmp_path / "wavs" / name).read_bytes() == data


async def test_a_worker_that_dies_costs_nothing(
    texts: Path, start_server: StartServer, tmp_path: Path
) -> None:
    """Texts whose worker died are spoken again, and every file is complete."""
    server = await start_server(throttle={"rtf": 0.2})
    (texts / "dos.txt").write_bytes(b"One line.\r\nAnother line.\r\n")
    argv = ("batch", "texts", "-o", "wavs", "--words", "--url", server.websocket_url)
    worker = worker_of(server)
    await until(lambda: worker.rows_used == 0, "the start-up probe has gone")
    process = await start(*argv, folder=tmp_path)
    await until(lambda: bool(server.state.sessions), "the command has connected")
    os.kill(worker.pid, signal.SIGSTOP)  # or one text ends before another one begins
    await until(lambda: worker.rows_used == 4, "all texts are being spoken")
    os.kill(worker.pid, signal.SIGKILL)
    outcome = await finished(process)
    assert outcome.status == 0, outcome.errors
    assert outcome.errors.splitlines()[-1].startswith("4 spoken")
    words = json.loads((tmp_path / "wavs" / "dos.json").read_text())["words"]
    assert [word["char_start"] for word in words] == [0, 4, 11, 19]


async def test_ctrl_c_leaves_nothing_half(
    texts: Path, start_server: StartServer, tmp_path: Path
) -> None:
    """After Ctrl-C there is no unfinished file and no traceback."""
    server = await start_server(throttle={"rtf": 2.0})
    argv = ("batch", "texts", "-o", "wavs", "--url", server.websocket_url)
    process = await start(*argv, folder=tmp_path)
    await check_ctrl_c(process, server)
    assert list((tmp_path / "wavs").iterdir()) == []


def test_what_cannot_be_read_is_skipped(
    texts: Path, served: ServerProcess, command_here: CommandHere, tmp_path: Path
) -> None:
    """Texts that cannot be read, or of which nothing is said, are skipped with a reason.

    The others are spoken, and the status is 1.
    """
    (texts / "latin.txt").write_bytes("Ça va ?".encode("latin-1"))
    (texts / "folder.txt").mkdir()
    (texts / "empty.txt").write_text("")
    (texts / "line.md").write_text("---\n")
    (texts / "bom.txt").write_bytes(b"\xef\xbb\xbfHello.")
    argv = ("batch", "texts", "-o", "wavs", "--words", "--url", served.websocket_url)
    outcome = command_here(*argv)
    assert outcome.status == 1
    *lines, last = outcome.errors.splitlines()
    assert sorted(lines) == [
        "ignored texts/cover.jpg: expected .txt or .md",
        "skipped texts/empty.txt: nothing in it is said",
        "skipped texts/latin.txt: is not UTF-8 (byte 0)",
        "skipped texts/line.md: nothing in it is said",
    ]
    assert last.startswith("4 spoken") and last.endswith("3 skipped")
    written = {path.stem for path in (tmp_path / "wavs").iterdir()}
    assert written == {"one", "two", "three", "bom"}
    (word,) = json.loads((tmp_path / "wavs" / "bom.json").read_text())["words"]
    assert (word["word"], word["char_start"]) == ("Hello.", 0)


async def test_a_full_disk_is_said_and_leaves_no_half_file(
    texts: Path, served: ServerProcess, tmp_path: Path, full_disk: FullDisk
) -> None:
    """If a file cannot be written, one line says so, and the unfinished file is removed."""
    argv = ("batch", "texts", "-o", "wavs", "--url", served.websocket_url)
    with full_disk(20_000):
        process = await start(*argv, folder=tmp_path)
    outcome = await finished(process)
    assert outcome.status == 1
    assert re.fullmatch(
        r"voiceagent-tts: wavs/\w+\.wav: cannot be written; File too large\n", outcome.errors
    )
    assert list((tmp_path / "wavs").iterdir()) == []


MISTAKES = {
    "no folder": (["nowhere", "-o", "out"], "nowhere: No such file or directory"),
    "no texts": (["empty", "-o", "out"], "empty: expected .txt or .md files; there are none"),
    "format": (["texts", "-o", "out", "--format", "aac"], "--format: expected one of wav, flac"),
    "output": (["texts", "-o", "texts/one.txt"], "texts/one.txt: File exists"),
    "voice": (["texts", "-o", "out", "--voice", "nobody"], "expected the name of a voice"),
    "one file": (["twice", "-o", "out"], "two.md and two.txt would become two.wav"),
    "long name": (["long", "-o", "out"], ".wav: cannot be written; File name too long"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_clear_line(
    mistake: str, texts: Path, served: ServerProcess, command_here: CommandHere, tmp_path: Path
) -> None:
    """A mistake is reported in one line, with status 1, and nothing is written."""
    (tmp_path / "empty").mkdir()
    for name in ("twice/two.md", "twice/two.txt", f"long/{'a' * 250}.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("Hello.")
    argv, sentence = MISTAKES[mistake]
    outcome = command_here("batch", *argv, "--url", served.websocket_url)
    assert outcome.status == 1
    assert outcome.errors.startswith("voiceagent-tts: ")
    assert sentence in outcome.errors
    assert outcome.errors.count("\n") == 1
    assert not list((tmp_path / "out").glob("*"))


def test_a_missing_package_is_one_clear_line(
    texts: Path,
    served: ServerProcess,
    command_here: CommandHere,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The base install lacks what divides texts; it is missed in one of several tasks."""
    monkeypatch.setitem(sys.modules, "sentencex", None)
    refused = command_here("batch", "texts", "-o", "out", "--url", served.websocket_url)
    assert (refused.status, refused.output) == (1, "")
    assert refused.errors == (
        "voiceagent-tts: the package 'sentencex' is missing. Install the extras that this command "
        "needs: pip install 'voiceagent-tts[server,espeak]'\n"
    )


def test_a_long_chapter_is_one_file(
    served: ServerProcess, command_here: CommandHere, tmp_path: Path
) -> None:
    """A text longer than one context has all its words on one clock."""
    (tmp_path / "book").mkdir()
    text = " ".join(islice(agent_sentences(4), 75))
    assert len(sections_of(text, "en")) > 1
    (tmp_path / "book" / "long.txt").write_text(text)
    argv = ("batch", "book", "-o", "wavs", "--words", "--url", served.websocket_url)
    outcome = command_here(*argv)
    assert outcome.status == 0, outcome.errors
    words = json.loads((tmp_path / "wavs" / "long.json").read_text())["words"]
    assert [(w["word"], w["char_start"]) for w in words] == [
        (word.text, word.char_start) for word in split_words(text)
    ]
    starts = [word["start_s"] for word in words]
    assert starts == sorted(starts)
    duration = soundfile.info(tmp_path / "wavs" / "long.wav").duration
    assert duration - 5 < starts[-1] < duration


def test_what_is_ignored_is_named_and_subfolders_are_spoken(
    served: ServerProcess, command_here: CommandHere, tmp_path: Path
) -> None:
    """Other files are named; the texts of subfolders become files of subfolders.

    A subfolder is made before its first file, whichever that is.
    """
    for name in ("z.txt", "notes.pdf", ".hidden", "part/b.md"):
        (tmp_path / "book" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "book" / name).write_text("Hello there.")
    argv = ("batch", "book", "-o", "wavs", "--words", "--url", served.websocket_url)
    outcome = command_here(*argv)
    assert outcome.status == 0, outcome.errors
    assert outcome.errors.splitlines()[0] == "ignored book/notes.pdf: expected .txt or .md"
    assert "2 spoken" in outcome.errors
    assert {each.name for each in (tmp_path / "wavs" / "part").iterdir()} == {"b.wav", "b.json"}
    assert soundfile.info(tmp_path / "wavs" / "part" / "b.wav").duration > 0.3
