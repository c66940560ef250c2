"""`serve` and `say` without an engine: the best voice that this machine can speak."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.command_line import CommandHere
from testbed.pocket import SMALL_MODEL, PocketHome
from voiceagent_tts.cli.best_voice import choose_engine
from voiceagent_tts.config import Settings
from voiceagent_tts.kokoro.published import PUBLISHED
from voiceagent_tts.server.state import worker_specs

QWEN3 = "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"
OTHER_QWEN3 = "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign"

Store = Callable[[str], None]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's client, no package of hibari, and no setting of an engine."""
    monkeypatch.setattr("voiceagent_tts.hibari.published.is_installed", lambda: False)
    monkeypatch.setattr("voiceagent_tts.kokoro.published.is_installed", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("VOICEAGENT_TTS_ENGINE", raising=False)
    monkeypatch.setenv("VOICEAGENT_TTS_MODELS", "")
    return tmp_path


@pytest.fixture
def store(cache: Path) -> Store:
    def store_model(repo: str) -> None:
        folder = cache / "hub" / f"models--{repo.replace('/', '--')}"
        (folder / "snapshots" / "1").mkdir(parents=True)
        (folder / "snapshots" / "1" / "config.json").write_text("{}")
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("1")

    return store_model


def add_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch, listed: str = "GPU 0: a card") -> None:
    """Put an `nvidia-smi` on the path that lists what a driver would."""
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{listed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


def store_pocket(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the small model of Pocket TTS, and let it be the default one."""
    PocketHome(cache).store()
    monkeypatch.setattr(
        "voiceagent_tts.plugins.pocket.published.models_of", lambda settings: (SMALL_MODEL,)
    )


def test_a_machine_without_models_has_the_embedded_voice(cache: Path) -> None:
    """The line says how to get a better one; with `--download` it is Pocket TTS."""
    choice = choose_engine(Settings())
    assert choice.settings.engine == "espeak"
    assert choice.reason is not None
    assert choice.reason.startswith("voice: espeak-ng") and "serve --download" in choice.reason
    assert choose_engine(Settings(), may_download=True).settings.engine == "pocket"


def test_a_downloaded_pocket_tts_comes_before_espeak(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its files are here, no option is needed."""
    store_pocket(cache, monkeypatch)
    choice = choose_engine(Settings())
    assert choice.settings.engine == "pocket"
    assert choice.reason is not None and choice.reason.startswith("voice: Pocket TTS on the CPU")


def test_hibari_comes_before_other_voices_of_a_cpu(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no download; `--download` asks for Pocket TTS."""
    monkeypatch.setattr("voiceagent_tts.hibari.published.is_installed", lambda: True)
    store_pocket(cache, monkeypatch)
    choice = choose_engine(Settings())
    assert choice.settings.engine == "hibari"
    assert choice.reason is not None and "natural English" in choice.reason
    assert choose_engine(Settings(), may_download=True).settings.engine == "pocket"
    monkeypatch.setattr("voiceagent_tts.plugins.pocket.published.is_installed", lambda: False)
    assert choose_engine(Settings(), may_download=True).settings.engine == "hibari"


def test_kokoro_speaks_beside_hibari_where_its_files_are(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names what speaks, and how to get more; `--download` is for what is installed."""
    monkeypatch.setattr("voiceagent_tts.hibari.published.is_installed", lambda: True)
    alone = choose_engine(Settings())
    assert alone.settings.beside is None
    assert alone.reason is not None and "serve --download" in alone.reason
    monkeypatch.setattr("voiceagent_tts.plugins.pocket.published.is_installed", lambda: False)
    assert "voiceagent-tts[server,kokoro]" in (choose_engine(Settings()).reason or "")
    monkeypatch.setattr("voiceagent_tts.kokoro.published.is_installed", lambda: True)
    assert choose_engine(Settings()).settings.beside is None
    assert choose_engine(Settings(), may_download=True).settings.beside == "kokoro"
    folder = cache / "hub" / f"models--{PUBLISHED.repo.replace('/', '--')}" / "snapshots"
    for name in ("onnx/model_quantized.onnx", "voices/af_heart.bin"):
        file = folder / (PUBLISHED.revision or "") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    choice = choose_engine(Settings())
    assert (choice.settings.engine, choice.settings.beside) == ("hibari", "kokoro")
    assert choice.reason is not None and "Kokoro for Spanish" in choice.reason
    assert list(worker_specs(choice.settings)) == ["hibari", "kokoro", "espeak"]


def test_a_gpu_with_a_model_comes_first(
    cache: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model without voices of its own, or without a GPU, is not chosen."""
    store(OTHER_QWEN3)
    add_gpu(cache, monkeypatch)
    assert choose_engine(Settings()).settings.engine == "espeak"
    store(QWEN3)
    choice = choose_engine(Settings())
    assert (choice.settings.engine, choice.settings.models) == ("qwen3", (QWEN3,))
    assert choice.reason == f"voice: {QWEN3} on the GPU"
    monkeypatch.setenv("PATH", "")
    assert choose_engine(Settings()).settings.engine == "espeak"


@pytest.mark.parametrize("listed", ["No devices were found", ""])
def test_a_driver_without_a_gpu_is_none(
    cache: Path, store: Store, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    """The driver's tool may be installed on a machine without a card."""
    store(QWEN3)
    add_gpu(cache, monkeypatch, listed)
    assert choose_engine(Settings()).settings.engine == "espeak"


def test_settings_decide_where_they_say_something(cache: Path) -> None:
    """An engine, or models without one, which are Qwen3-TTS's; nothing is printed then."""
    assert choose_engine(Settings(engine="espeak")).reason is None
    choice = choose_engine(Settings(models=("folder",)))
    assert (choice.settings.engine, choice.reason) == ("qwen3", None)


def test_say_tells_what_speaks(
    command_here: CommandHere, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line on standard error; standard output is the file's alone."""
    monkeypatch.delenv("VOICEAGENT_TTS_ENGINE", raising=False)
    said = command_here("say", "Hello.", "-o", "hello.wav")
    assert said.status == 0, said.errors
    assert said.errors.count("voice: espeak-ng, which sounds like a robot; ") == 1


@pytest.mark.parametrize("command", ["say", "batch"])
def test_a_voice_without_its_files_is_told_from_an_unknown_one(
    command: str,
    command_here: CommandHere,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line names the engine, and the command that brings the files."""
    monkeypatch.setattr("voiceagent_tts.kokoro.published.is_installed", lambda: True)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("Bonjour.")
    what = ("Bonjour.", "-o", "a.wav") if command == "say" else ("texts", "-o", "wavs")
    missing = command_here(command, *what, "--voice", "FF_siwis")
    assert missing.status == 1
    assert missing.errors.splitlines()[-1] == (
        "voiceagent-tts: FF_siwis is a voice of kokoro whose files are not on this machine; "
        "`voiceagent-tts models download kokoro` gets them"
    )
    unknown = command_here(command, *what, "--voice", "siwis")
    assert "expected the name of a voice, got 'siwis'" in unknown.errors


def test_serve_pocket_without_files_or_a_network_is_one_clear_line(
    command_here: CommandHere, cache: Path
) -> None:
    """It names the model, and what to do."""
    ended = command_here("serve", "--port", "0", "--engine", "pocket")
    assert (ended.status, ended.output) == (1, "")
    assert "Pocket TTS english: not on this machine, and the download failed" in ended.errors
    ended = command_here("serve", "--port", "0", "--engine", "pocket", "--model", "klingon")
    assert ended.status == 1 and "got 'klingon'; known are dutch" in ended.errors
