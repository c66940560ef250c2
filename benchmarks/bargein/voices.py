"""The services of the barge-in conditions: ours and stock ones."""

from dataclasses import replace
from typing import Any, Literal

from benchmarks.bargein.stock import stock_services
from voiceagent_tts.plugins.bench.bargein.services import own_services
from voiceagent_tts.plugins.bench.bargein.session import Host
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass

VoiceKind = Literal["ours", "option off", "baseten", "cartesia"]
"""How the agent speaks: our adapter; the same in a session without LiveKit's option for words; a
stock plugin with our server."""


def service_of(
    kind: VoiceKind, host: Host, url: str, voice: str, max_lead_s: float | None
) -> ServiceClass:
    """The class and the arguments of a service.

    Args:
        kind: how the agent speaks.
        host: the agent framework.
        url: WebSocket URL of the server.
        voice: id of a voice of the server.
        max_lead_s: how far the server may run ahead of playback; None for its default.
    """
    match kind:
        case "ours" | "option off":
            ours = _class(next(each for each in own_services(url) if _host(each) == host))
            return replace(ours, arguments=_spoken_by(ours, voice) | {"max_lead_s": max_lead_s})
        case stock:
            found = [each for each in stock_services(url) if _host(each) == host]
            return _class(next(each for each in found if f".{stock}." in each.address))


def _host(address: TargetAddress) -> str:
    return address.address.partition(":")[0]


def _class(address: TargetAddress) -> ServiceClass:
    return ServiceClass(address.address.partition(":")[2], address.options.arguments)


def _spoken_by(service: ServiceClass, voice: str) -> dict[str, Any]:
    """The arguments of `service` with another voice."""
    arguments = service.arguments
    if "settings" in arguments:
        return arguments | {"settings": arguments["settings"] | {"voice": voice}}
    return arguments | {"voice": voice}
