"""Message-sequence charts: a line per event, a lifeline per worker and switch.

A line is made as a list of characters, ``cells``, into which arrows and texts are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from fanin.sim.checker.link_ends import PREMATURE, SENDER_EVENTS, LinkEvent, Packet
from fanin.sim.checker.party import DOWN, UP
from fanin.sim.checker.system import Event
from fanin.sim.checker.topology import ROOT, Topology
from fanin.wire.link import LinkKind

_WIDTH = 28  # characters from a lifeline to the next
_LIFELINE, _RIGHT_ARROW, _LEFT_ARROW, _LINE, _MARK = "│", "►", "◄", "─", "●"
_EVENT_TEXTS = {
    "submit": "begins: {message}",
    "timeout": "timeout: {message} again",
    "lose": "{message} is lost on its way {way}",
    "duplicate": "{message} on its way {way} will come twice",
    "delay": "{message} on its way {way} is delayed",
}


def chart(events: Sequence[Event], topology: Topology) -> str:
    """Return the chart with a heading. Messages are drawn at their arrival; other events are text beside it.

    Lifelines are those of the workers, then of the switches, with the root at the right.
    """
    names = topology.names
    header = "".join(name.ljust(_WIDTH) for name in names).rstrip()
    lines = [f"{number:>3}  {_line(event, topology, names)}" for number, event in enumerate(events, start=1)]
    return "\n".join([f"     {header}", *lines])


def _line(event: Event, topology: Topology, names: Sequence[str]) -> str:
    cells = list((_LIFELINE.ljust(_WIDTH) * (len(names) - 1)) + _LIFELINE)
    message = f"{event.message.kind.name} s{event.slot} r{event.message.round}"
    parent = topology.parents[event.actor]
    lifeline = len(names) - 1 if parent == ROOT else topology.actor_of(parent)
    actor, switch = event.actor * _WIDTH, lifeline * _WIDTH  # columns of the lifelines
    if event.name in _EVENT_TEXTS:
        cells[actor] = _MARK
        way = f"{'to' if event.direction == DOWN else 'from'} {names[event.actor]}"
        text = _EVENT_TEXTS[event.name].format(message=message, way=way)
        return "".join(cells) + f"  {text}"
    left, right = sorted((actor, switch))
    cells[left + 1 : right] = _LINE * (right - left - 1)
    arrives_right = (switch if event.direction == UP else actor) == right
    cells[right - 1 if arrives_right else left + 1] = _RIGHT_ARROW if arrives_right else _LEFT_ARROW
    label = f" {message}, late " if event.name == "deliver late" else f" {message} "
    start = left + (_WIDTH - len(label)) // 2  # centred between the left lifeline and the next one
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
    oldest = 0  # frames freed so far: events count sequence numbers from the sender's oldest frame
    for number, event in enumerate(events, start=1):
        lines.append(f"{number:>3}  {_line_of_link(event, oldest, sequences)}")
        oldest += event.freed
    return "\n".join(lines)


def _line_of_link(event: LinkEvent, oldest: int, sequences: int) -> str:
    """Return the line: an arrow if a packet arrives, else a mark at one of the ends and text beside it."""
    cells = list(_LIFELINE.ljust(_WIDTH) + _LIFELINE)
    packet = event.packet
    message = _on_the_wire(packet, oldest, sequences) if packet else ""
    is_forward = packet is not None and packet.kind in (LinkKind.DATA, LinkKind.PROBE)  # from the sender
    if event.name in ("deliver", "duplicate", "overtake"):
        cells[1:_WIDTH] = _LINE * (_WIDTH - 1)
        cells[_WIDTH - 1 if is_forward else 1] = _RIGHT_ARROW if is_forward else _LEFT_ARROW
        label = f" {message} "
        start = (_WIDTH - len(label)) // 2
        cells[start : start + len(label)] = label
        remarks = {"duplicate": "  and will come again", "overtake": "  overtakes another"}
        return "".join(cells) + remarks.get(event.name, "")
    at_sender = is_forward or event.name in SENDER_EVENTS
    cells[0 if at_sender else _WIDTH] = _MARK
    if event.name == PREMATURE and packet:
        return "".join(cells) + f"  sends {message} again, early"
    return "".join(cells) + f"  {_LINK_EVENT_TEXTS.get(event.name, event.name).format(message=message)}"


def _on_the_wire(packet: Packet, oldest: int, sequences: int) -> str:
    """Return a packet's text, with sequence numbers as on the wire: modulo ``sequences``."""
    text = f"{packet.kind.name} {(packet.sequence + oldest) % sequences}"
    if packet.kind is LinkKind.PROBE:
        return packet.kind.name
    if packet.kind is LinkKind.DATA:
        return text
    # ``sequence`` of an answer is the next expected frame. Bit k of ``arrived`` is frame sequence + 1 + k.
    held = [k for k in range(packet.arrived.bit_length()) if packet.arrived >> k & 1]
    held_text = "".join(f", has {(packet.sequence + 1 + k + oldest) % sequences}" for k in held)
    return f"{text}{held_text}, room to {(packet.value + oldest) % sequences}"
