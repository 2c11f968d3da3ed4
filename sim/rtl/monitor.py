"""Protocol monitors: every stream of every simulation is watched for the stream contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth.lib import stream, wiring


class ProtocolError(AssertionError):
    """A stream broke its contract."""


def streams_of(component: wiring.Component) -> Iterator[tuple[str, Any]]:
    """Every stream port of a component as ``(dotted name, interface)``, arrays included."""

    def walk(signature: wiring.Signature, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(signature, stream.Signature) or isinstance(
            getattr(value, "signature", None), stream.Signature
        ):
            yield path, value
            return
        for name, member in signature.members.items():
            if not member.is_signature:
                continue
            child = f"{path}.{name}" if path else name
            yield from _dimensions(member, getattr(value, name), child)

    def _dimensions(member: Any, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from _dimensions(member, item, f"{path}[{index}]")
        else:
            yield from walk(member.signature, value, path)

    yield from walk(component.signature, component, "")


def watch(name: str, port: Any) -> Any:
    """A simulator process that raises ProtocolError when ``port`` withdraws valid or changes its payload.

    The contract: once valid, a payload holds, unchanged, until the cycle in which ready is seen.
    """

    async def process(ctx: Any) -> None:
        waiting = None
        async for _, _, valid, ready, payload in ctx.tick().sample(
            port.valid, port.ready, _as_value(port.payload)
        ):
            if waiting is not None:
                if not valid:
                    raise ProtocolError(f"{name}: valid withdrawn before ready")
                if payload != waiting:
                    raise ProtocolError(
                        f"{name}: payload changed from {waiting:#x} to {payload:#x} before ready"
                    )
            waiting = payload if valid and not ready else None

    return process


def _as_value(payload: Any) -> Any:
    return payload.as_value() if hasattr(payload, "as_value") else payload
