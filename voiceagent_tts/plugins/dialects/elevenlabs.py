"""ElevenLabs' dialect (`/v1/text-to-speech/{voice_id}/stream-input`, `/multi-stream-input`).

The voice, the format and the language are in the address of the socket. A message carries text for
a context, which the first one opens. Audio is base64 in JSON, with the times of the characters that
it begins. This module knows no I/O, no clock and no engine.

ElevenLabs' clients close a context when its text is complete, and also when the user interrupts. A
context whose text was flushed before is spoken to its end; one with text behind its last flush, or
closed a second time, is cancelled.

Source: see `elevenlabs_messages`.
"""

from base64 import b64encode
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.dialects.character_alignment import CharacterAlignment
from voiceagent_tts.plugins.dialects.elevenlabs_messages import (
    OutputFormat,
    SocketMessage,
    SocketOptions,
)
from voiceagent_tts.plugins.speech.containers import ContainerEncoder
from voiceagent_tts.plugins.speech.encoding import silent_reply
from voiceagent_tts.protocol.messages import (
    AudioMessage,
    Close,
    ContextCancel,
    ContextEnd,
    ContextFlush,
    ContextOpen,
    ContextOpened,
    ContextText,
    DoneMessage,
    ErrorMessage,
    ServerMessage,
    WordsMessage,
)
from voiceagent_tts.protocol.refusals import refusal_of
from voiceagent_tts.protocol.server_connection import (
    Answer,
    Closing,
    Command,
    Dialect,
    MakeMessages,
    WireMessages,
    refuse_if_big,
)

_POLICY_VIOLATION = 1008
_MAX_REASON_BYTES = 120

_ERRORS: dict[str, str] = {
    ErrorCode.INVALID_VOICE: "voice_id_does_not_exist",
    ErrorCode.TOO_MANY_CONTEXTS: "max_active_contexts_exceeded",
    ErrorCode.UNAUTHORIZED: "invalid_api_key",
}
"""ElevenLabs' names of errors that have one; the others keep ours."""


def error_name(code: str) -> str:
    """ElevenLabs' name of an error, or ours where it has none."""
    return _ERRORS.get(code, code)


@dataclass(slots=True)
class _Context:
    client_id: str | None
    """The id that the client gave; None for the context of messages without one."""
    alignment: CharacterAlignment
    encoder: ContainerEncoder | None = None
    """Of a compressed format, once there is audio."""
    last_chars: int = 0
    """Length of the last text, which the server may still refuse."""
    is_blank: bool = True
    has_audio: bool = False
    """Whether audio was sent; a thread that makes messages sets it."""
    has_unflushed_text: bool = False
    ends_with_space: bool = True
    is_ended: bool = False
    flushes: int = 0
    error: str = ""
    handle: int | None = None  # once the context is open


class ElevenLabs(Dialect):
    """Translates the messages of one ElevenLabs socket.

    Args:
        voice: name of the voice; None for the server's first.
        is_multi: whether the socket has many contexts (`multi-stream-input`). The other kind has
            one, which an empty text ends, and the socket with it.
        counts_from_context: as for `CharacterAlignment`.
    """

    def __init__(
        self,
        voice: str | None,
        options: SocketOptions,
        *,
        is_multi: bool,
        counts_from_context: bool = False,
    ) -> None:
        self._voice = voice
        self._options = options
        self._format = OutputFormat.parse(options.output_format)
        self._is_multi = is_multi
        self._counts_from_context = counts_from_context
        self._contexts: dict[str, _Context] = {}
        self._handles: dict[int, str] = {}
        self._unnamed = 0  # contexts without an id that have ended
        self._is_leaving = False

    # Messages from the client.

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """See `Dialect.read`."""
        try:
            message = SocketMessage.model_validate_json(data)
        except ValidationError as error:
            raise refusal_of(error) from None  # the cause holds the client's text
        refuse_if_big(data, max_bytes, "message", message.context_id)
        if message.close_socket:
            return self._leave()
        client_id = message.context_id if self._is_multi else None
        context_id = client_id or f"unnamed-{self._unnamed}"
        if message.close_context or (message.text == "" and not self._is_multi):
            return self._close(context_id, client_id)
        if context_id in self._contexts:
            return self._speak(context_id, message)
        if message.text:
            return [self._open(context_id, client_id, message), *self._speak(context_id, message)]
        return []  # keeps a socket without contexts alive

    def _open(self, context_id: str, client_id: str | None, message: SocketMessage) -> ContextOpen:
        output, options = self._format, self._options
        self._contexts[context_id] = _Context(
            client_id, CharacterAlignment(counts_from_context=self._counts_from_context)
        )
        buffering: dict[str, Any] = {"max_buffer_delay_ms": 0} if options.auto_mode else {}
        return ContextOpen(
            context_id=context_id,
            voice=self._voice,
            language=options.language_code,
            speed=message.speed,
            seed=options.seed,
            audio=output.audio,
            idle_s=options.inactivity_timeout,
            markup=options.enable_ssml_parsing,
            **buffering,
        )

    def _speak(self, context_id: str, message: SocketMessage) -> list[Command]:
        context = self._contexts[context_id]
        text = message.text or ""
        if not text and not message.flush:
            text = " "  # an empty text keeps the context alive
        is_complete = message.flush or self._options.auto_mode
        if is_complete and not (text[-1].isspace() if text else context.ends_with_space):
            text += " "  # what follows is another phrase
        commands: list[Command] = []
        if text:
            context.ends_with_space = text[-1].isspace()
            context.has_unflushed_text |= not text.isspace()
            context.is_blank = context.is_blank and text.isspace()
            context.alignment.add_text(text)
            context.last_chars = len(text)
            commands.append(ContextText(context_id=context_id, text=text))
        if message.flush:
            context.flushes += 1
            context.has_unflushed_text = False
            commands.append(ContextFlush(context_id=context_id, flush_id=context.flushes))
        return commands

    def _close(self, context_id: str, client_id: str | None) -> list[Command]:
        context = self._contexts.get(context_id)
        if context is None:
            return self._nothing_to_close(client_id)
        is_dropped = context.is_ended or (self._is_multi and context.has_unflushed_text)
        context.is_ended = True
        if is_dropped:
            return [ContextCancel(context_id=context_id)]
        return [ContextEnd(context_id=context_id)]

    def _nothing_to_close(self, client_id: str | None) -> list[Command]:
        if self._is_multi:
            return []  # a context that has ended was answered
        return [Answer(_encode(client_id, audio=None, isFinal=True)), Close()]

    def _leave(self) -> list[Command]:
        """Let contexts that are complete be spoken to their end, and close the socket then."""
        self._is_leaving = True
        if not any(context.is_ended for context in self._contexts.values()):
            return [Close()]
        open_ids = [name for name, context in self._contexts.items() if not context.is_ended]
        return [ContextCancel(context_id=context_id) for context_id in open_ids]

    # Messages to the client.

    def write(self, message: ServerMessage | AudioMessage) -> WireMessages:
        """See `Dialect.write`."""
        match message:
            case ContextOpened():
                self._handles[message.handle] = message.context_id
                self._contexts[message.context_id].handle = message.handle
                return []
            case AudioMessage():
                return self._audio(message)
            case WordsMessage():
                return self._words(message)
            case ErrorMessage():
                return self._error(message)
            case DoneMessage():
                return self._done(message)
            case _:
                return []  # ElevenLabs' protocol has no such message

    def _words(self, message: WordsMessage) -> WireMessages:
        context = self._contexts[message.context_id]
        context.alignment.add_words(message)
        # Those who add up the lengths of chunks, or of audio, need times and audio together.
        is_sent_ahead = self._counts_from_context or context.alignment.is_full
        return [*_chunk(context, b"", context.alignment.take())] if is_sent_ahead else []

    def _audio(self, message: AudioMessage) -> WireMessages:
        context = self._contexts[self._handles[message.handle]]
        audio = self._format.audio
        end = message.sample_offset + len(message.pcm) // audio.bytes_per_sample
        alignment = context.alignment.take(audio.samples_to_ms(end) + 1)
        make = partial(_chunk_of, self._format, context, message.pcm, alignment)
        return self._made(context, make)

    def _made(self, context: _Context, make: MakeMessages) -> WireMessages:
        """Messages with audio; those with compressed audio are made later."""
        if self._format.container is None or context.handle is None:
            return [*make()]
        return [make]

    def _error(self, message: ErrorMessage) -> WireMessages:
        if message.code == ErrorCode.CONTEXT_EXISTS and message.context_id is not None:
            del self._contexts[message.context_id]  # the id of a context that has ended
        context = self._contexts.get(message.context_id or "")
        if context is not None:
            context.error = message.message
            context.alignment.drop_text(context.last_chars)  # it was refused, or the context ends
            context.last_chars = 0
        return [
            _encode(
                message.context_id if context is None else context.client_id,
                message=message.message,
                error=error_name(message.code),
                code=_POLICY_VIOLATION,
            )
        ]

    def _done(self, message: DoneMessage) -> WireMessages:
        context = self._contexts.pop(message.context_id, None)
        if context is None:
            return []  # refused before it could be opened
        if context.handle is not None:
            del self._handles[context.handle]
        self._unnamed += context.client_id is None
        if not self._contexts:
            self.closing = self._closing_after(context, message)
        end = _encode(context.client_id, audio=None, isFinal=True)
        if message.reason == "cancelled":
            return [end]
        alignment = context.alignment.take()
        make = partial(_last_chunk, self._format, context, message, alignment)
        return [*self._made(context, make), end]

    def _closing_after(self, context: _Context, message: DoneMessage) -> Closing | None:
        """How to close the socket behind its last context, if a client expects it."""
        if message.reason == "error":
            # Pipecat shows its user the reason of a close, and no error in a message.
            reason = context.error.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
            return _POLICY_VIOLATION, reason
        return None if self._is_multi and not self._is_leaving else (1000, "")


def _chunk_of(
    output: OutputFormat, context: _Context, pcm: bytes, alignment: dict[str, Any] | None
) -> list[str]:
    return _chunk(context, _push(output, context, pcm), alignment)


def _last_chunk(
    output: OutputFormat,
    context: _Context,
    message: DoneMessage,
    alignment: dict[str, Any] | None,
) -> list[str]:
    return _chunk(context, _rest(output, context, message), alignment)


def _push(output: OutputFormat, context: _Context, pcm: bytes) -> bytes:
    """The next bytes in the client's format."""
    if output.container is None:
        return pcm
    if context.encoder is None:
        context.encoder = ContainerEncoder(output.container, output.sample_rate_hz)
    return context.encoder.push(pcm)


def _rest(output: OutputFormat, context: _Context, message: DoneMessage) -> bytes:
    """The last bytes of a context."""
    rest = b""
    if message.reason == "complete" and not (context.has_audio or context.is_blank):
        silence = silent_reply(output.audio.encoding, output.audio.sample_rate)
        rest = _push(output, context, silence)
    return rest if context.encoder is None else rest + context.encoder.finish()


def _chunk(context: _Context, data: bytes, alignment: dict[str, Any] | None) -> list[str]:
    """Audio with the characters that it begins; nothing while an encoder collects samples."""
    if not data and alignment is None:
        return []
    context.has_audio |= bool(data)
    audio = b64encode(data).decode()
    times = {"alignment": alignment, "normalizedAlignment": alignment}
    return [_encode(context.client_id, audio=audio, isFinal=False, **times)]


def _encode(client_id: str | None, **fields: Any) -> str:
    context = {} if client_id is None else {"contextId": client_id}
    return to_json({**fields, **context}).decode()
