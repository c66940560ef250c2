"""Targets by their addresses on the command line.

    [NAME=]ADDRESS[{"argument": ...}]

An address is `ws://` or `wss://` for our WebSocket, `http://` or `https://` for a server with
OpenAI's API, `pocket-tts+http://` for the server of the package `pocket-tts`, `cartesia+ws://` for
a socket with Cartesia's protocol; `pipecat:` or `livekit:` and the import path of a class for a
service of these hosts. Arguments are JSON: fields of every request, or arguments of the class;
`server_pid` is the process of a server on this machine.
"""

import json
import re
from dataclasses import dataclass, replace

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.extras import install_hint
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass
from voiceagent_tts.plugins.bench.targets.dialects import cartesia, tts_v1
from voiceagent_tts.plugins.bench.targets.target import Options, Target

_FORM = re.compile(r"(?:(?P<name>[\w .-]+)=)?(?P<address>[^{]+)(?P<arguments>\{.*\})?", re.DOTALL)
_KINDS = "ws, http, pocket-tts+http, cartesia+ws (or with wss, https), pipecat, livekit"


@dataclass(frozen=True, slots=True)
class TargetAddress:
    """A target as the command line names it.

    Attributes:
        name: its name in reports.
        address: its address, without secrets.
        options: how its utterances are to be spoken.
    """

    name: str
    address: str
    options: Options

    @classmethod
    def parse(cls, text: str, options: Options) -> "TargetAddress":
        """Read an address; its own arguments replace those of `options`.

        Raises:
            InvalidRequestError: it is not an address, or its arguments are not a JSON object.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None or ":" not in match["address"]:
            raise _invalid(f"[NAME=]ADDRESS[{{JSON}}] with an address of {_KINDS}", text)
        try:
            arguments = json.loads(match["arguments"] or "{}")
        except json.JSONDecodeError as error:
            raise _invalid("arguments as a JSON object", error.msg) from error
        address = match["address"].strip()
        is_class = address.startswith(("pipecat:", "livekit:"))
        own = ("server_pid",) if is_class else ("voice", "model", "api_key", "server_pid")
        known = {name: arguments.pop(name) for name in own if name in arguments}
        for name in known.keys() - {"server_pid"}:
            if not isinstance(known[name], str | None):
                raise _invalid(f"{name} as a string", repr(known[name]))
        if not isinstance(pid := known.get("server_pid", 1), int) or pid < 1:
            raise _invalid("server_pid as the number of a process", str(pid))
        merged = replace(options, **known, arguments={**options.arguments, **arguments})
        return cls((match["name"] or address).strip(), address, merged)

    def named_by_voice(self, has_many: bool) -> "TargetAddress":
        """Add the voice to the name where a target is measured with many."""
        if not has_many or self.options.voice is None:
            return self
        return replace(self, name=f"{self.name}, {self.options.voice}")

    @property
    def service_class(self) -> ServiceClass:
        """The class that an address of a host names."""
        return ServiceClass(self.address.partition(":")[2], self.options.arguments)

    def open(self) -> Target:
        """Make the target; nothing is connected yet.

        Raises:
            InvalidRequestError: the kind of the address or its class is unknown, or the package
                that it needs is missing.
        """
        try:
            return self._open()
        except ModuleNotFoundError as error:
            extra = self.address.partition(":")[0]
            extras = {extra} & {"pipecat", "livekit"} or {"bench"}
            raise InvalidRequestError(
                f"the package {error.name!r} is missing. Install it: {install_hint(*extras)}"
            ) from error

    def _open(self) -> Target:
        kind, _, rest = self.address.partition(":")
        match kind:
            case "ws" | "wss":
                return tts_v1(self.address, self.options)
            case "http" | "https":
                from voiceagent_tts.plugins.bench.targets.speech_http import SpeechTarget

                return SpeechTarget.openai(self.address, self.options)
            case "pocket-tts+http" | "pocket-tts+https":
                from voiceagent_tts.plugins.bench.targets.speech_http import SpeechTarget

                return SpeechTarget.pocket(f"{kind.partition('+')[2]}:{rest}", self.options)
            case "cartesia+ws" | "cartesia+wss":
                return cartesia(f"{kind.partition('+')[2]}:{rest}", self.options)
            case "pipecat":
                from voiceagent_tts.plugins.bench.targets.pipecat import PipecatTarget

                return PipecatTarget(self.service_class)
            case "livekit":
                from voiceagent_tts.plugins.bench.targets.livekit import LiveKitTarget

                return LiveKitTarget(self.service_class)
            case _:
                raise _invalid(f"an address of {_KINDS}", self.address)


def _invalid(expected: str, got: str) -> InvalidRequestError:
    return InvalidRequestError(f"target: expected {expected}; got {got!r}")
