"""The LiveKit agent at its console: it speaks, is interrupted, and commits what was heard."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from livekit.agents import llm
from livekit.protocol.agent_pb.agent_session import ChatRole

from agents import stand_ins
from livekit import rtc
from testbed.caller import RATE_HZ, calling
from testbed.listening import words_of
from testbed.livekit_conversation import count, heard
from testbed.missing import import_portaudio
from testbed.user_sounds import speech
from voiceagent_tts.server.serve import RunningServer

ROOT = Path(__file__).parent.parent.parent
QUESTION = "What can you tell me about it?"
CUT_S = 2.0


async def test_a_conversation_at_the_console(server: RunningServer) -> None:
    """The agent greets, answers, stops when it is interrupted, and commits what was heard."""
    question = await speech(server.websocket_url, QUESTION, rate_hz=RATE_HZ)
    console = (sys.executable, "-m", "livekit.agents", "console", "agents/livekit_voice.py")
    env = {**os.environ, "VOICEAGENT_TTS_URL": server.websocket_url}
    async with calling(*console, cwd=str(ROOT), env=env) as caller:
        await caller.until(lambda: len(caller.said(ChatRole.ASSISTANT)) == 1)
        caller.say(question)
        await caller.until(lambda: caller.playing_s >= CUT_S)
        caller.say(question)
        await caller.until(lambda: len(caller.said(ChatRole.ASSISTANT)) == 2)
    greeting, answer = (message.content[0].text for message in caller.said(ChatRole.ASSISTANT))
    assert greeting == stand_ins.LINES[0]
    assert "the user spoke" in caller.said(ChatRole.USER)[0].content[0].text
    assert stand_ins.LINES[1].startswith(answer.rstrip())
    words = await words_of(server.websocket_url, stand_ins.LINES[1], language="en")
    assert abs(count(words, answer) - heard(words, caller.played_s[1])) <= 1
    assert caller.said(ChatRole.ASSISTANT)[1].interrupted


def test_the_extra_livekit_is_enough_without_models() -> None:
    """The agent is imported without LiveKit's OpenAI plugin; a server that needs it is refused."""
    program = (
        "import os, sys; sys.modules['livekit.plugins.openai'] = None;"
        "from agents import livekit_voice; print(type(livekit_voice.choose_stt()).__name__);"
        "os.environ['LOCAL_LLM_URL'] = 'http://127.0.0.1:9/v1'; livekit_voice.choose_llm()"
    )
    argv = [sys.executable, "-c", program]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout == "DurationSTT\n"
    assert result.stderr.splitlines()[-1].startswith("LOCAL_LLM_URL needs LiveKit's plugin")
    assert result.returncode == 1


def test_an_interrupted_line_is_quoted() -> None:
    """The stand-in quotes the last words that were heard, then speaks its next line."""
    # Imported by the tests that use it: it loads a thousand modules.
    from agents import livekit_voice

    history = llm.ChatContext.empty()
    assert livekit_voice.next_line(history) == stand_ins.LINES[0]
    history.add_message(role="assistant", content=stand_ins.LINES[0])
    history.add_message(role="user", content="Go on.")
    assert livekit_voice.next_line(history) == stand_ins.LINES[1]
    history.add_message(role="assistant", content="One, two, three, four, five,", interrupted=True)
    answer = livekit_voice.next_line(history)
    assert answer.startswith("The last words that you heard were: two, three, four, five. ")
    assert answer.endswith(stand_ins.LINES[2])


async def test_local_models_transcribe_and_answer(
    local_models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent uses the servers that the environment names, without an API key."""
    from agents import livekit_voice

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in ("STT", "LLM"):
        monkeypatch.setenv(f"LOCAL_{name}_URL", local_models)
        monkeypatch.setenv(f"LOCAL_{name}_MODEL", f"tiny-{name}")
    silence = rtc.AudioFrame(bytes(32_000), 16_000, 1, 16_000)
    event = await livekit_voice.choose_stt().recognize([silence])
    assert event.alternatives[0].text == "heard by tiny-STT"
    history = llm.ChatContext.empty()
    history.add_message(role="user", content="Who are you?")
    async with livekit_voice.choose_llm() as model, model.chat(chat_ctx=history) as reply:
        said = [chunk.delta.content or "" async for chunk in reply if chunk.delta]
    assert "".join(said) == "said by tiny-LLM"


def test_a_console_without_sound_devices_says_what_is_missing(tmp_path: Path) -> None:
    """Status 1, and the last line names the package or the device; there is no traceback."""
    result = subprocess.run(
        [sys.executable, "-m", "agents.livekit_voice", "console"], cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path), "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] in {
        "PortAudio library not found; try `apt-get install libportaudio2`",
        "no microphone was found; connect one, or choose one of those that --list-devices shows; "
        "without devices: console --text",
    }
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("option", ["--text", "--record"])
def test_a_console_without_portaudio_says_so(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LiveKit's console would end with a traceback, also where it is for text."""
    from agents import livekit_voice

    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as ended:
        livekit_voice.check_console([option])
    assert ended.value.code == "PortAudio library not found; try `apt-get install libportaudio2`"


def test_a_console_without_a_terminal_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is one line: LiveKit's console would end with status 0, and say nothing."""
    from agents import livekit_voice

    import_portaudio()
    monkeypatch.setattr(sys, "argv", ["livekit_voice", "console", "--text"])
    with Path(os.devnull).open() as nothing, pytest.raises(SystemExit) as ended:
        monkeypatch.setattr(sys, "stdin", nothing)
        livekit_voice.main()
    # A text as the status is printed to standard error, and the process ends with status 1.
    assert ended.value.code == "the console needs a terminal, and standard input is none"


def test_text_is_answered_at_the_console_without_sound_devices(server: RunningServer) -> None:
    """`console --text` greets in a terminal, on a machine without sound devices."""
    import_portaudio()
    terminal, inside = pty.openpty()
    agent = subprocess.Popen(
        [sys.executable, "-m", "agents.livekit_voice", "console", "--text"], cwd=ROOT,
        env={**os.environ, "VOICEAGENT_TTS_URL": server.websocket_url, "COLUMNS": "200"},
        stdin=inside, stdout=inside, stderr=inside, start_new_session=True,
    )  # fmt: skip
    os.close(inside)  # else nothing would tell that the agent has ended
    shown = b""
    try:
        while stand_ins.LINES[0].split("!")[0].encode() not in shown:
            shown += os.read(terminal, 4_096)
    finally:
        agent.terminate()
        agent.wait()
        os.close(terminal)
