"""Microphone and loudspeaker of a real sound server: barge-in, unplugging, other sample rates."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from agents import stand_ins
from testbed import user_sounds
from testbed.listening import words_of
from testbed.server_process import ServerProcess
from testbed.sound_server import SoundServer, devices_at_44100_hz, sound_server
from voiceagent_tts.client import WordTimestamp
from voiceagent_tts.core import SAMPLE_RATE_HZ

pytestmark = [
    pytest.mark.services,
    pytest.mark.realtime,
    pytest.mark.alone,  # sound servers give up where the machine is busy
]

ROOT = Path(__file__).parents[2]
MAX_CUT_S = 0.2


class Talker:
    """A running `local_mic`, and what it printed; a context manager, which leaves nothing open."""

    def __init__(self, sound: dict[str, str], voice: ServerProcess, *options: str) -> None:
        environment = {
            **sound,
            "VOICEAGENT_TTS_URL": voice.websocket_url,
            "COLUMNS": "300",
            "PYTHONUNBUFFERED": "1",
        }
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agents.local_mic", *options], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.join()

    def wait_for(self, pattern: str, count: int = 1) -> list[str]:
        """Wait for `count` lines that match; returns them."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: len(self._matching(pattern)) >= count or self.process.poll() is not None, 30
            )
            assert found and len(self._matching(pattern)) >= count, self.lines
            return self._matching(pattern)

    def end(self) -> int:
        """Press Ctrl-C; returns the exit status."""
        self.process.send_signal(2)
        return self.join()

    def join(self) -> int:
        """Wait until the program has ended; returns its exit status."""
        status = self.process.wait(20)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def _matching(self, pattern: str) -> list[str]:
        return [line for line in self.lines if re.search(pattern, line)]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[SoundServer]:
    """A sound server with a loudspeaker and a microphone."""
    with sound_server(tmp_path) as server:
        yield server


@pytest.fixture
def question(served: ServerProcess) -> bytes:
    """A user's question, PCM16 at 16 kHz."""
    return asyncio.run(user_sounds.speech(served.websocket_url, "What about your week?"))


def heard_after(words: list[WordTimestamp], text: str, played_s: float) -> str:
    """The part of `text` of which a sample was played after `played_s`."""
    ends = [word.word.char_end for word in words if word.start_sample < played_s * SAMPLE_RATE_HZ]
    return text[: max(ends, default=0)]


def test_a_voice_cuts_a_reply_within_200_ms(
    sound: SoundServer, served: ServerProcess, question: bytes
) -> None:
    """Three replies end within 200 ms of the user's first sound, and the history is right."""
    with Talker(sound.environment, served) as talker:
        with sound.record("speaker.monitor") as speaker, sound.record("mouth.monitor") as mouth:
            talker.wait_for("^agent ")  # the greeting has ended
            replies, heard = 1, None
            asked_at = speaker.now_s
            sound.say(question, user_sounds.RATE_HZ)
            for count, at_s in enumerate((0.7, 1.0, 1.4), 1):
                text = stand_ins.next_line(replies, heard)
                words = asyncio.run(words_of(served.websocket_url, text))
                began_at = speaker.wait_until_audible(mouth.silent_from(asked_at))
                speaker.wait_until(began_at + at_s)
                asked_at = speaker.now_s
                sound.say(question, user_sounds.RATE_HZ)
                heard = talker.wait_for(r"\| interrupted", count)[-1][7:].partition(" | ")[0]
                voice_at = mouth.wait_until_audible(asked_at)
                silent_at = speaker.silent_from(began_at, until_s=voice_at + 0.4)
                replies += 1
                assert silent_at - voice_at < MAX_CUT_S
                # The recording of the loudspeaker is exact to a few blocks of 10 ms.
                played_s = silent_at - began_at
                assert heard in {
                    heard_after(words, text, played_s + error_s) for error_s in (-0.05, 0.0, 0.05)
                }
        assert talker.end() == 0, talker.lines
        assert json.loads(talker.lines[-1])["cuts"] >= 3


def test_a_loudspeaker_is_not_taken_for_the_user(
    sound: SoundServer, served: ServerProcess, question: bytes
) -> None:
    """With echo cancellation, the agent's voice in the microphone does not interrupt the agent.

    The first reply is the one from which the canceller learns; the second is played after that.
    """
    sound.pactl("load-module", "module-loopback", "source=speaker.monitor", "sink=mouth")
    with Talker(sound.environment, served, "--loudspeaker") as talker:
        talker.wait_for("^agent ")
        sound.say(question, user_sounds.RATE_HZ)
        replies = talker.wait_for("^agent ", 2)
        assert talker.end() == 0, talker.lines
        assert replies == [f"agent  {line}" for line in stand_ins.LINES[:2]]
        summary = json.loads(talker.lines[-1])
        assert (summary["turns"], summary["cuts"], summary["false_interruptions"]) == (1, 0, 0)


def test_unplugged_devices_end_the_conversation_with_a_sentence(
    sound: SoundServer, served: ServerProcess
) -> None:
    """Status 1, the reason, and the summary of the conversation so far."""
    with Talker(sound.environment, served, "--loudspeaker") as talker:
        talker.wait_for("^agent ")
        sound.stop()
        assert talker.join() == 1
        assert re.fullmatch(
            "the (microphone|loudspeaker) has stopped, as if it were unplugged; "
            "connect it and start again; without devices: --wav in.wav --out out.wav",
            talker.lines[-1],
        )
        assert not any("Traceback" in line for line in talker.lines)


def test_a_device_that_does_not_exist_is_named(sound: SoundServer, served: ServerProcess) -> None:
    """Status 1, and how to find the devices that exist."""
    with Talker(sound.environment, served, "--input", "no such microphone") as talker:
        assert talker.join() == 1
        assert talker.lines[-1].startswith(
            "there is no microphone 'no such microphone'; connect one"
        )
        listing = subprocess.run(
            [sys.executable, "-m", "agents.local_mic", "--list-devices"], cwd=ROOT,
            env=sound.environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert re.search(r"\* +\d+ default, ALSA", listing.stdout)


def test_devices_of_another_sample_rate_are_resampled(
    served: ServerProcess, tmp_path: Path
) -> None:
    """A sentence says so for each device, and the agent speaks at its own pace."""
    with devices_at_44100_hz(tmp_path) as environment:
        with Talker(environment, served) as talker:
            first, second = talker.wait_for("44,100 Hz", 2)
            talker.wait_for(f"^agent  {stand_ins.LINES[0]}$")
            assert talker.end() == 0, talker.lines
    assert first == "the microphone records at 44,100 Hz; its audio is resampled"
    assert second == "the loudspeaker plays at 44,100 Hz; its audio is resampled"
