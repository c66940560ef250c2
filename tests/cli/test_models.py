"""`voiceagent-tts models` against a local model hub: list, download, verify and use."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.command_line import Command, CommandHere, Outcome
from testbed.local_hub import Hub, commit_of, serving
from voiceagent_tts.hibari.published import published_voices
from voiceagent_tts.hub import ALIGNER_ID, PUBLISHED
from voiceagent_tts.kokoro import published as kokoro
from voiceagent_tts.plugins.pocket.published import LANGUAGE_MODELS

REFERENCE = Path(__file__).parents[1] / "reference"
BASE = "Qwen/Qwen3-TTS-12Hz-0.6B-Base"
WEIGHTS = "model.safetensors"
OLD, NEW = commit_of(1), commit_of(2)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with two commits of the tiny Base model."""
    old = Path(shutil.copytree(REFERENCE / "base-0b6", tmp_path / "old"))
    (old / "README.md").write_text("The first commit.")
    with serving(Hub({(BASE, OLD): old, (BASE, NEW): REFERENCE / "base-0b6"})) as running:
        yield running


@pytest.fixture
def run(command: Command, hub: Hub, tmp_path: Path) -> Command:
    """Run `voiceagent-tts *argv` with that hub and an empty cache."""
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "cache"),
        "VOICEAGENT_TTS_VOICES_FOLDER": str(tmp_path / "voices"),
    }

    async def run_with_hub(*argv: str, **more: str) -> Outcome:
        return await command(*argv, environment={**environment, **more})

    return run_with_hub


def files_of(folder: Path) -> dict[str, bytes]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


async def test_a_model_is_downloaded_listed_and_used_offline(run: Command, tmp_path: Path) -> None:
    """All files are downloaded; then the id stands for the folder, even without a network."""
    absent = (await run("models", "list")).output
    voices = list(published_voices())
    found = [line.split()[0] for line in absent.splitlines()]
    assert found == [*PUBLISHED, *voices, "kokoro", *LANGUAGE_MODELS]
    missing = len(found) - 1  # one voice is in its package, and Kokoro is not
    assert absent.count("  not on this machine\n") == missing, "columns do not touch"
    done = await run("models", "download", BASE)
    assert done.status == 0, done.errors
    folder = Path(done.output.strip())
    assert files_of(folder) == files_of(REFERENCE / "base-0b6")
    (line,) = [line for line in (await run("models", "list")).output.splitlines() if BASE in line]
    assert line.endswith(str(folder))
    sound = str(REFERENCE / "reference.wav")
    added = await run(
        "voices", "add", "anna", sound, "--model", BASE, "--consent", "Anna", HF_HUB_OFFLINE="1"
    )
    assert added.status == 0, added.errors


async def test_an_interrupted_download_goes_on(run: Command, hub: Hub) -> None:
    """Bytes received before a connection broke are not requested again."""
    folder = hub.commits[BASE, OLD]
    (folder / WEIGHTS).write_bytes(bytes(24 * 2**20))  # the client writes ten megabytes at a time
    hub.cuts.add(WEIGHTS)
    download = ("models", "download", f"{BASE}@{OLD}")
    done = await run(*download)
    if done.status:  # the client may leave the next attempt to the caller
        done = await run(*download)
    assert done.status == 0, done.errors
    assert [path for path, _ in hub.ranges] == [WEIGHTS]
    assert files_of(Path(done.output.strip())) == files_of(folder)


async def test_a_revision_can_be_pinned(run: Command) -> None:
    done = await run("models", "download", f"{BASE}@{OLD}")
    assert done.status == 0, done.errors
    assert (Path(done.output.strip()) / "README.md").read_text() == "The first commit."


async def test_a_damaged_file_is_found_and_brought_again(run: Command, hub: Hub) -> None:
    """Bytes that do not match the hub's checksum are refused; the next attempt replaces them."""
    hub.damages.add(WEIGHTS)
    damaged = await run("models", "download", BASE)
    assert damaged.status == 1
    assert f"damaged and removed: {WEIGHTS}" in damaged.errors
    hub.damages.clear()
    done = await run("models", "download", BASE)
    assert done.status == 0, done.errors
    assert files_of(Path(done.output.strip())) == files_of(REFERENCE / "base-0b6")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ("models", "download", "Qwen/no-such"),
            "check the name, and set HF_TOKEN for a model whose terms you have accepted",
        ),
        (("models", "download", "no id"), "expected the folder of a model, or an id such as"),
        (("models", "download", BASE, "--source", "ftp"), "expected hf or modelscope; got ftp"),
        (
            ("serve", "--model", "Qwen/no-such"),
            "Qwen/no-such: not on this machine, and the download failed",
        ),
    ],
)
async def test_what_cannot_be_had_is_one_line(
    run: Command, argv: tuple[str, ...], sentence: str
) -> None:
    outcome = await run(*argv)
    assert (outcome.status, outcome.output) == (1, "")
    assert sentence in outcome.errors and "Traceback" not in outcome.errors


@pytest.mark.parametrize(
    "argv",
    [
        ("models", "download", BASE),
        ("models", "download", "kokoro"),
        ("models", "download", "english"),
        ("serve", "--port", "0", "--engine", "kokoro"),
        ("serve", "--port", "0", "--model", BASE),
        ("serve", "--port", "0", "--aligner-model", ALIGNER_ID),
        ("verify", "--model", BASE),
        ("finetune", "prepare", "texts", "-o", "data"),
    ],
    ids=" ".join,
)
async def test_without_a_hub_the_line_says_what_to_do(
    run: Command, argv: tuple[str, ...], tmp_path: Path
) -> None:
    """The same of every model: where its files may come from, and the folder they belong in."""
    (tmp_path / "texts").mkdir()
    outcome = await run(*argv, HF_HUB_OFFLINE="1")
    assert (outcome.status, outcome.output) == (1, "")
    told = " ".join(outcome.errors.split())
    assert ": not on this machine, and the download failed: " in told
    assert told.endswith(
        "; try again with a network, set HF_ENDPOINT to a mirror, or copy the folder HF_HOME of a "
        f"machine that has the files to {tmp_path / 'cache'}"
    )


async def test_a_forced_aligner_that_is_not_here_names_its_command(run: Command) -> None:
    """`serve` does not download it by itself; the line can be copied."""
    outcome = await run("serve", "--port", "0", "--engine", "espeak", "--aligner", "forced")
    assert outcome.status == 1
    assert f"try `voiceagent-tts models download {ALIGNER_ID}`" in outcome.errors


def test_models_are_listed_without_the_hubs_client(
    command_here: CommandHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes with other extras than hibari's; a name of theirs says so, and an id names one."""
    for package in ("huggingface_hub", "pocket_tts"):
        monkeypatch.setitem(sys.modules, package, None)
    listed = command_here("models", "list")
    assert listed.status == 0, listed.errors
    names = [line.split()[0] for line in listed.output.splitlines()]
    assert names == [*PUBLISHED, *published_voices()]
    refused = command_here("models", "download", "english")
    assert refused.status == 1 and "not installed: kokoro, pocket\n" in refused.errors
    refused = command_here("models", "download", BASE)
    assert refused.status == 1 and "'voiceagent-tts[server,qwen3]'" in refused.errors


async def test_kokoro_is_downloaded_without_its_other_forms(
    command: Command, tmp_path: Path
) -> None:
    """At its pinned commit; a damaged file is removed, and comes with the next attempt."""
    folder = tmp_path / "repository"
    for name in ("onnx/model_quantized.onnx", "onnx/model.onnx", "voices/af_heart.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 10_000)
    commit = kokoro.PUBLISHED.revision or ""
    published = Hub({(kokoro.PUBLISHED.repo, commit): folder})
    published.damages.add("onnx/model_quantized.onnx")
    with serving(published) as hub:
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache")}
        damaged = await command("models", "download", "kokoro", environment=environment)
        assert damaged.status == 1 and "damaged and removed" in damaged.errors
        hub.damages.clear()
        whole = await command("models", "download", "kokoro", environment=environment)
    model = Path(whole.output.strip())
    assert model.read_bytes() == b"onnx/model_quantized.onnx" * 10_000
    assert [file.name for file in model.parent.iterdir()] == ["model_quantized.onnx"]
    again = await command("models", "list", environment={**environment, "HF_HUB_OFFLINE": "1"})
    (line,) = [line for line in again.output.splitlines() if line.startswith("kokoro ")]
    assert "downloaded" in line
