"""Sound servers of one's own: a loudspeaker and a microphone without hardware.

With PulseAudio, the loudspeaker is a null sink whose monitor is recorded. The microphone is the
monitor of another null sink, `mouth`, into which a user's audio is played. JACK has silent devices
with a single sample rate. Needs Debian's `pulseaudio`, `pulseaudio-utils`, `libasound2-plugins`,
`jackd2` and `libportaudio2`.
"""

import contextlib
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import numpy as np

from testbed.missing import require_program
from testbed.waiting import wait_until
from voiceagent_tts.offspring import Following

_RATE_HZ = 48_000
_AUDIBLE = 600
"""Magnitude from which a recorded sample is audible."""
_MODULES = (
    "module-native-protocol-unix socket={folder}/native auth-anonymous=1",
    "module-null-sink sink_name=speaker rate=48000",
    "module-null-sink sink_name=mouth rate=48000",
    "module-remap-source source_name=microphone master=mouth.monitor",
)
_ALSA = "pcm.!default { type pulse }\nctl.!default { type pulse }\n"
_BLOCK_BYTES = _RATE_HZ // 100 * 2
_PATIENCE_S = 30.0


class Recording:
    """Records one source, with the time at which each block of 10 ms arrived.

    Attributes:
        blocks: (arrival in `time.monotonic()`, largest magnitude) of each block.
    """

    def __init__(self, source: str, environment: dict[str, str]) -> None:
        self.blocks: list[tuple[float, int]] = []
        self._arrived = threading.Condition()
        self._process = subprocess.Popen(
            ["parec", "-d", source, "--raw", "--format=s16le", f"--rate={_RATE_HZ}", "--channels=1",
             "--latency-msec=10"],
            env=environment, stdout=subprocess.PIPE, preexec_fn=Following(os.getpid()),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def now_s(self) -> float:
        """When the last block arrived; waits for the first."""
        self.wait_until(0.0)
        return self.blocks[-1][0]

    def wait_until(self, at_s: float) -> None:
        self._wait(lambda: bool(self.blocks) and self.blocks[-1][0] > at_s)

    def wait_until_audible(self, after_s: float) -> float:
        """Wait for an audible block after `after_s`; returns when it arrived."""
        self._wait(lambda: self._first_audible(after_s) is not None)
        first = self._first_audible(after_s)
        assert first is not None
        return first

    def silent_from(self, after_s: float, until_s: float = math.inf) -> float:
        """When the last audible block between the two times arrived; `after_s` without any."""
        return max(self._audible(after_s, until_s), default=after_s)

    def _first_audible(self, after_s: float) -> float | None:
        return next(self._audible(after_s, math.inf), None)

    def _audible(self, after_s: float, until_s: float) -> Iterator[float]:
        for at, peak in list(self.blocks):
            if after_s < at < until_s and peak > _AUDIBLE:
                yield at

    def _wait(self, is_true: Callable[[], bool]) -> None:
        with self._arrived:
            assert self._arrived.wait_for(is_true, _PATIENCE_S), "waited in vain for a sound"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while len(data := self._process.stdout.read(_BLOCK_BYTES)) == _BLOCK_BYTES:
            samples = np.frombuffer(data, "<i2").astype(np.int32)
            with self._arrived:
                self.blocks.append((time.monotonic(), int(np.abs(samples).max())))
                self._arrived.notify_all()


class SoundServer:
    """A running sound server.

    Attributes:
        environment: environment of programs that use it.
    """

    def __init__(self, folder: Path) -> None:
        (folder / ".asoundrc").write_text(_ALSA)
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            "PULSE_SERVER": f"unix:{folder}/native",
        }
        modules = [f"--load={module.format(folder=folder)}" for module in _MODULES]
        for program in ("pactl", "pacat", "parec"):
            require_program(program, package="pulseaudio-utils")
        command = [require_program("pulseaudio"), "-n", "--daemonize=no", "--exit-idle-time=-1",
                   "--use-pid-file=no"]  # fmt: skip
        self._log = (folder / "pulseaudio.log").open("wb")
        self._process = subprocess.Popen(
            [*command, *modules],
            env=self.environment,
            stderr=self._log,
            preexec_fn=Following(os.getpid()),
        )
        log = folder / "pulseaudio.log"
        wait_until(lambda: not self._pactl("get-default-sink").returncode, f"PulseAudio: {log}")
        self.pactl("set-default-sink", "speaker")
        self.pactl("set-default-source", "microphone")

    def pactl(self, *arguments: str) -> str:
        """Run a command of the server; returns its output."""
        result = self._pactl(*arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def record(self, source: str) -> Recording:
        return Recording(source, self.environment)

    def say(self, pcm: bytes, rate_hz: int) -> None:
        """Play PCM16 into the microphone, to its end."""
        subprocess.run(
            ["pacat", "--playback", "-d", "mouth", "--raw", "--format=s16le", f"--rate={rate_hz}",
             "--channels=1", "--latency-msec=20"],
            env=self.environment, input=pcm, check=True,
        )  # fmt: skip

    def stop(self) -> None:
        """End the server: its devices are gone."""
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def _pactl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["pactl", *arguments], env=self.environment, capture_output=True, text=True, check=False
        )


@contextlib.contextmanager
def sound_server(folder: Path) -> Iterator[SoundServer]:
    server = SoundServer(folder)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def devices_at_44100_hz(folder: Path) -> Iterator[dict[str, str]]:
    """Run JACK with silent devices of 44,100 Hz; yields the environment of programs that use it."""
    jackd = require_program("jackd", package="jackd2")
    environment = {**os.environ, "JACK_DEFAULT_SERVER": folder.name, "JACK_NO_START_SERVER": "1"}
    with (folder / "jackd.log").open("wb") as log:
        process = subprocess.Popen(
            [jackd, "--no-realtime", "-d", "dummy", "-r", "44100", "-p", "512"],
            env=environment, stdout=log, stderr=log, preexec_fn=Following(os.getpid()),
        )  # fmt: skip
    try:
        asking = ["jack_wait", "-c"]
        wait_until(
            lambda: not subprocess.run(asking, env=environment, capture_output=True).returncode,
            f"JACK: {folder / 'jackd.log'}",
        )
        yield environment
    finally:
        process.terminate()
        process.wait()
