"""Simulate a user at an agent's console: microphone, loudspeaker, and the agent's history.

Uses the protocol of `lk agent console`: protobuf messages over TCP, each after its length, with
audio at 48 kHz. As that program (livekit-cli, `pkg/console/pipeline.go`) it plays what it has until
it is told to clear it: there is no message about a pause.
"""

import asyncio
import contextlib
import os
import signal
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from livekit.protocol.agent_pb.agent_session import AgentSessionMessage, ChatMessage, ChatRole

from testbed.waiting import PATIENCE_S
from voiceagent_tts.offspring import Following

RATE_HZ = 48_000
FRAME_S = 0.02
FRAME_BYTES = int(RATE_HZ * FRAME_S) * 2
_SILENCE = bytes(FRAME_BYTES)


class Caller:
    """A simulated user, connected to an agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.history: list[ChatMessage] = []
        self.played_s: list[float] = []
        """Played seconds of each utterance that has ended."""
        self._reader, self._writer = reader, writer
        self._to_say: deque[bytes] = deque()
        self._received_s = 0.0
        self._began_at = 0.0
        self._is_whole = False
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Send and receive audio until the agent disconnects; then close the connection."""
        with contextlib.closing(self._writer):
            async with asyncio.TaskGroup() as group:
                ticking = group.create_task(self._tick())
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    await self._receive()
                ticking.cancel()

    def say(self, pcm: bytes) -> None:
        """Play PCM16 at 48 kHz into the microphone."""
        self._to_say += [pcm[at : at + FRAME_BYTES] for at in range(0, len(pcm), FRAME_BYTES)]

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true`, which is checked after every message and every frame."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(is_true)

    @property
    def playing_s(self) -> float:
        """Played seconds of the agent's current utterance; 0 while the agent is silent."""
        if not self._received_s:
            return 0.0
        return min(time.monotonic() - self._began_at, self._received_s)

    def said(self, role: ChatRole) -> list[ChatMessage]:
        return [message for message in self.history if message.role == role]

    async def _receive(self) -> None:
        while True:
            (length,) = struct.unpack(">I", await self._reader.readexactly(4))
            self._handle(AgentSessionMessage.FromString(await self._reader.readexactly(length)))
            async with self._changed:
                self._changed.notify_all()

    def _handle(self, message: AgentSessionMessage) -> None:
        match message.WhichOneof("message"):
            case "audio_output":
                if not self._received_s:
                    self._began_at, self._is_whole = time.monotonic(), False
                self._received_s += message.audio_output.samples_per_channel / RATE_HZ
            case "audio_playback_flush":
                self._is_whole = True
            case "audio_playback_clear" if self._received_s:
                self._end_utterance()
            case "event" if message.event.HasField("conversation_item_added"):
                item = message.event.conversation_item_added.item
                if item.HasField("message"):
                    self.history.append(item.message)
            case _:
                pass

    def _end_utterance(self) -> None:
        self.played_s.append(self.playing_s)
        self._received_s = 0.0

    async def _tick(self) -> None:
        """Act as a sound card: send microphone frames, and report the end of playback."""
        next_at = time.monotonic()
        while True:
            data = self._to_say.popleft() if self._to_say else _SILENCE
            frame = AgentSessionMessage.ConsoleIO.AudioFrame(
                data=data.ljust(FRAME_BYTES, b"\0"),
                sample_rate=RATE_HZ,
                num_channels=1,
                samples_per_channel=FRAME_BYTES // 2,
            )
            self._send(AgentSessionMessage(audio_input=frame))
            if self._is_whole and self._received_s and self.playing_s >= self._received_s:
                self._end_utterance()
                finished = AgentSessionMessage.ConsoleIO.AudioPlaybackFinished()
                self._send(AgentSessionMessage(audio_playback_finished=finished))
            async with self._changed:
                self._changed.notify_all()
            next_at += FRAME_S
            await asyncio.sleep(next_at - time.monotonic())

    def _send(self, message: AgentSessionMessage) -> None:
        data = message.SerializeToString()
        self._writer.write(struct.pack(">I", len(data)) + data)


@contextlib.asynccontextmanager
async def calling(*argv: str, cwd: str, env: dict[str, str]) -> AsyncIterator[Caller]:
    """Start an agent's console process that connects to a caller; ends it afterwards.

    Args:
        argv: the command, without `--connect-addr`.
        cwd: working directory of the process.
        env: environment of the process.
    """
    arrived: asyncio.Future[Caller] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = Caller(reader, writer)
        arrived.set_result(caller)
        await caller.run()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        agent = await asyncio.create_subprocess_exec(
            *argv,
            "--connect-addr",
            f"{host}:{port}",
            cwd=cwd,
            env=env,
            start_new_session=True,
            preexec_fn=Following(os.getpid()),
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                caller = await arrived
            yield caller
        finally:
            # The caller still listens: an agent that begins a line while it is asked to end waits
            # until that line was played.
            await _end(agent)


async def _end(agent: asyncio.subprocess.Process) -> None:
    """Ask the agent to end; if it does not, kill it with the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        agent.terminate()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await agent.wait()
    except TimeoutError:
        os.killpg(agent.pid, signal.SIGKILL)
        raise
