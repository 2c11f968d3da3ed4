"""Message-sequence charts: a line per event, a lifeline per worker, and the switch's lifeline at the right."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.sim.checker.link_ends import PREMATURE, SENDER_EVENTS, LinkEvent, Packet
from fanin.sim.checker.party import DOWN
from fanin.sim.checker.system import Event
from fanin.wire.link import LinkKind

_WIDTH = 28  # from a lifeline to the next
_LIFELINE, _RIGHT_ARROW, _LEFT_ARROW, _LINE, _MARK = "│", "►", "◄", "─", "●"
_EVENT_TEXTS = {
    "submit": "begins: {message}",
    "timeout": "timeout: {message} again",
    "lose": "{message} is lost on its way {way}",
    "duplicate": "{message} on its way {way} will come twice",
    "delay": "{message} on its way {way} is delayed",
}


def chart(events: Sequence[Event], *, workers: int) -> str:
    """Return the chart with a heading. Messages are drawn at their arrival; other events are text beside it."""
    names = [f"worker {worker}" for worker in range(workers)] + ["switch"]
    header = "".join(name.ljust(_WIDTH) for name in names).rstrip()
    lines = [f"{number:>3}  {_line(event, workers)}" for number, event in enumerate(events, start=1)]
    return "\n".join([f"     {header}", *lines])


def _line(event: Event, workers: int) -> str:
    cells = list((_LIFELINE.ljust(_WIDTH) * workers) + _LIFELINE)
    message = f"{event.message.kind.name} s{event.slot} r{event.message.round}"
    lifeline, switch = event.worker * _WIDTH, workers * _WIDTH
    if event.name in _EVENT_TEXTS:
        cells[lifeline] = _MARK
        direction = f"to worker {event.worker}" if event.direction == DOWN else f"from worker {event.worker}"
        text = _EVENT_TEXTS[event.name].format(message=message, way=direction)
        return "".join(cells) + f"  {text}"
    cells[lifeline + 1 : switch] = _LINE * (switch - lifeline - 1)
    cells[lifeline + 1 if event.direction == DOWN else switch - 1] = (
        _LEFT_ARROW if event.direction == DOWN else _RIGHT_ARROW
    )
    label = f" {message}{', late' * (event.name == 'deliver late')} "
    start = lifeline + (_WIDTH - len(label)) // 2
    cells[start : start + len(label)] = label
    return "".join(cells)


_LINK_EVENT_TEXTS = {
    "offer": "takes a frame from its user",
    "send": "sends {message}",
    "repeat": "sends {message} again",
    "coincide": "does so a moment early: {message}",
    "advance": "puts a frame in order",
    "consume": "its user takes a frame",
    "delay": "ack_delay is over",
    "lose": "{message} is lost",
    "give up": "gives up: TIMEOUT",
    "die": "dies",
}


def link_chart(events: Sequence[LinkEvent], *, sequences: int) -> str:
    """Return the chart of a sender (left) and a receiver (right), with sequence numbers as on the wire."""
    lines = [f"     {'sender'.ljust(_WIDTH)}receiver"]
    oldest = 0  # sequence number that the events' relative numbers count from
    for number, event in enumerate(events, start=1):
        lines.append(f"{number:>3}  {_line_of_link(event, oldest, sequences)}")
        oldest += event.freed
    return "\n".join(lines)


def _line_of_link(event: LinkEvent, oldest: int, sequences: int) -> str:
    cells = list(_LIFELINE.ljust(_WIDTH) + _LIFELINE)
    packet = event.packet
    message = _on_the_wire(packet, oldest, sequences) if packet else ""
    forward = packet is not None and packet.kind in (LinkKind.DATA, LinkKind.PROBE)
    if event.name in ("deliver", "duplicate", "overtake"):
        cells[1:_WIDTH] = _LINE * (_WIDTH - 1)
        cells[_WIDTH - 1 if forward else 1] = _RIGHT_ARROW if forward else _LEFT_ARROW
        text = f" {message} "
        start = (_WIDTH - len(text)) // 2
        cells[start : start + len(text)] = text
        how = {"duplicate": "  and will come again", "overtake": "  overtakes another"}
        return "".join(cells) + how.get(event.name, "")
    at_sender = forward or event.name in SENDER_EVENTS
    cells[0 if at_sender else _WIDTH] = _MARK
    if event.name == PREMATURE and packet:
        return "".join(cells) + f"  sends {message} again, early"
    return "".join(cells) + f"  {_LINK_EVENT_TEXTS.get(event.name, event.name).format(message=message)}"


def _on_the_wire(packet: Packet, oldest: int, sequences: int) -> str:
    number = f"{packet.kind.name} {(packet.sequence + oldest) % sequences}"
    if packet.kind is LinkKind.PROBE:
        return packet.kind.name
    if packet.kind is LinkKind.DATA:
        return number
    held = [k for k in range(packet.arrived.bit_length()) if packet.arrived >> k & 1]
    numbers = "".join(f", has {(packet.sequence + 1 + k + oldest) % sequences}" for k in held)
    return f"{number}{numbers}, room to {(packet.value + oldest) % sequences}"
