"""A spoken conversation: voice activity detection, transcription, language model and voice.

When the user speaks while the agent does, the reply pauses at once. If the sound was an utterance,
the reply is cut there, and the history keeps what was heard. Otherwise (a cough, "mhm", a door) the
reply continues with the next sample. This module knows no devices: audio is passed in, and taken
out of `Playback`.
"""

import asyncio
import enum
import time
from collections.abc import Callable

from openai import OpenAIError

from agents.models import LanguageModel, Message, Transcriber
from agents.playback import Playback
from agents.reply import Reply
from agents.speech_detector import Detection, SpeechDetector
from agents.stage_clock import Stage, StageClock
from voiceagent_tts.client import TTSClient
from voiceagent_tts.errors import VoiceAgentError

BACKCHANNELS = frozenset(
    {"mhm", "mmhmm", "mm", "hm", "hmm", "uhhuh", "uh", "um", "aha", "ah", "oh"}
)
"""Transcripts that show that the user listens; they do not interrupt."""


class State(enum.Enum):
    """What the agent does."""

    LISTENING = "listening"
    HEARING = "hearing you"
    THINKING = "thinking"
    SPEAKING = "speaking"
    PAUSED = "paused"
    """The user makes a sound during a reply, and it is not known yet whether it is an utterance."""


class Conversation:
    """Answers a user, pauses and stops for the user, and keeps the history.

    Args:
        client: connected to the voice server.
        transcriber: turns utterances into text.
        language_model: writes the replies.
        end_silence_s: silence that ends the user's turn.
        voice: voice of the agent; None for the server's default.

    Attributes:
        history: all messages; of an interrupted reply, the text that was heard.
        playback: what the loudspeaker plays.
        clock: the latency of the turns.
        state: what the agent does.
        reply: the reply that is being spoken.
        problems: sentences about servers that failed.
        false_interruptions: sounds that paused a reply and did not stop it.
        on_message: called with each new message of the history.
    """

    def __init__(
        self,
        client: TTSClient,
        transcriber: Transcriber,
        language_model: LanguageModel,
        *,
        end_silence_s: float,
        voice: str | None = None,
    ) -> None:
        self.history: list[Message] = []
        self.playback = Playback()
        self.clock = StageClock()
        self.state = State.LISTENING
        self.reply: Reply | None = None
        self.problems: list[str] = []
        self.false_interruptions = 0
        self.on_message: Callable[[Message], None] = lambda message: None
        self._client = client
        self._transcriber = transcriber
        self._language_model = language_model
        self._voice = voice
        self._detector = SpeechDetector(end_silence_s=end_silence_s)
        self._earlier = b"", 0.0  # audio and voice of an utterance that the user continues
        self._is_transcribing = False
        self._turn: asyncio.Task[None] | None = None  # from the end of an utterance to its reply
        self._speaking: asyncio.Task[None] | None = None  # the reply

    @property
    def is_idle(self) -> bool:
        """Whether the user is silent and the agent has nothing to do."""
        return self.state is State.LISTENING and not self._detector.is_speaking

    def greet(self) -> None:
        """Speak first."""
        self._start_reply()

    async def hear(self, pcm: bytes) -> None:
        """Receive the next audio of the microphone, PCM16 at `MICROPHONE_RATE_HZ`."""
        match await self._detector.detect(pcm):
            case Detection.STARTED:
                self._start_utterance()
            case Detection.ENDED:
                self._end_utterance()
            case Detection.NOTHING:
                pass
        audible_at_s = self.playback.audible_at_s
        if self.state is State.SPEAKING and audible_at_s is not None:
            self.clock.end_stage(Stage.TTS, audible_at_s)

    async def aclose(self) -> None:
        """Stop speaking, and close the models; the history keeps what was heard."""
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.wait({self._turn})
        if self.reply is not None:
            await self._cut(self.reply)
        await self._detector.aclose()
        await self._transcriber.aclose()
        await self._language_model.aclose()

    # The user's turn.

    def _start_utterance(self) -> None:
        if self._is_transcribing and self._turn is not None:
            self._turn.cancel()  # the user continues; the utterance is transcribed as a whole
        self.playback.pause()
        self.state = State.HEARING if self.reply is None else State.PAUSED

    def _end_utterance(self) -> None:
        earlier_pcm, earlier_s = self._earlier
        pcm = earlier_pcm + bytes(self._detector.utterance)
        voice_s = earlier_s + self._detector.voice_s
        self._earlier = pcm, voice_s
        self.clock.start_turn(self._detector.ended_at_s)
        self.clock.end_stage(Stage.VAD, time.monotonic())
        if self.reply is None:
            self.state = State.THINKING
        self._turn = asyncio.create_task(self._answer(pcm, voice_s))

    async def _answer(self, pcm: bytes, voice_s: float) -> None:
        """Transcribe an utterance, and answer it; a sound without words changes nothing."""
        text = await self._transcribe(pcm, voice_s)
        self.clock.end_stage(Stage.STT, time.monotonic())
        if self.reply is not None and is_interruption(text):
            await self._cut(self.reply)
        elif self.reply is not None:
            self.clock.drop_turn()
            self.false_interruptions += 1
            self.state = State.SPEAKING
            self.playback.resume()
            return
        if text:
            self._add(Message("user", text))
            self._start_reply()
        else:
            self.clock.drop_turn()
            self.playback.resume()
            self.state = State.LISTENING

    async def _transcribe(self, pcm: bytes, voice_s: float) -> str:
        self._is_transcribing = True
        try:
            text = await self._transcriber.transcribe(pcm, voice_s)
        except OpenAIError as error:
            self.problems.append(f"the transcription server failed: {error}")
            text = ""
        finally:
            self._is_transcribing = False
        self._earlier = b"", 0.0
        return text

    # The agent's reply.

    def _start_reply(self) -> None:
        self.playback.start_reply()
        self.state = State.THINKING
        if self._detector.is_speaking:
            self.playback.pause()
        self._speaking = asyncio.create_task(self._speak())

    async def _speak(self) -> None:
        """Speak a reply to the history, and add it to the history when it was played."""
        text = ""
        try:
            context = await self._client.open(voice=self._voice)
            self.reply = reply = Reply(context, self.playback, self.clock)
            self.state = State.PAUSED if self._detector.is_speaking else State.SPEAKING
            await reply.speak(self._language_model.reply(self.history))
            text = reply.text
        except* VoiceAgentError as failures:
            self.problems.append(f"the voice server failed: {failures.exceptions[0]}")
            text = self.reply.heard_locally() if self.reply else ""
        except* OpenAIError as failures:
            self.problems.append(f"the language model's server failed: {failures.exceptions[0]}")
            text = self.reply.text if self.reply else ""
        if text:
            self._add(Message("assistant", text))
        self._end_reply()

    async def _cut(self, reply: Reply) -> None:
        """Stop the reply, and add to the history what was heard of it."""
        assert self._speaking is not None
        played_samples = self.playback.stop()
        self._speaking.cancel()
        await asyncio.wait({self._speaking})
        try:
            heard = (await reply.cut(played_samples)).text_spoken
        except VoiceAgentError as error:
            self.problems.append(f"the voice server did not cut the reply: {error}")
            heard = reply.heard_locally()
        if heard:
            self._add(Message("assistant", heard, is_interrupted=True))
        self._end_reply()

    def _end_reply(self) -> None:
        self.reply = None
        is_answering = self._turn is not None and not self._turn.done()
        if self._detector.is_speaking:
            self.state = State.HEARING
        else:
            self.state = State.THINKING if is_answering else State.LISTENING

    def _add(self, message: Message) -> None:
        self.history.append(message)
        self.on_message(message)


def is_interruption(text: str) -> bool:
    """Whether a transcript has words that interrupt a reply."""
    letters = "".join(character for character in text.lower() if character.isalnum())
    return bool(letters) and letters not in BACKCHANNELS
