"""Layout of the drawing of a plan: devices as cards around the switch, wires through the switch.

Cards are in rows. Each pair of rows has a part of the switch between them, a horizontal bar. If there are
several bars, a vertical *spine* left of the cards joins them. A wire leaves its card vertically, follows a
*lane* of the bar (and of the spine, to another bar), and enters the target's card vertically. Lanes are
assigned such that wires of a lane do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fanin.report.svg import Point

WIDTH = 960.0
# Sizes in px.
TOP = 62.0  # space for the host above the cards
COLUMNS = 5  # maximum columns of cards
GUTTER, GAP = 14.0, 30.0  # between cards; between a card and the switch
PAD, HEAD = 7.0, 30.0  # padding and height of the title of a card
SEGMENT_HEAD, SEGMENT_GAP = 24.0, 7.0
#: A run of layers: pitch of rows; width of the first block, of the others; minimum width of a run.
ROW, LEAD, CELL, RUN = 18.0, 62.0, 15.0, 138.0
LANE, BAR_PAD, PORT = 13.0, 20.0, 17.0  # pitch of lanes and padding in the switch; pitch of wires at a card
MAX_WIRE_WIDTH = 7

Layer = Mapping[str, Any]
#: kinds of pointwise layers, each with the sign of its block in the drawing
POINTWISE = {"online_norm": "n", "bias": "b", "relu": "r", "relu6": "r", "add": "+"}


@dataclass(frozen=True)
class Segment:
    """Segment of layers of one device that feed each other directly, in topological order."""

    device: str  #: name of the device
    hop: int  #: number of times that a frame has crossed the network before the segment
    layers: tuple[Layer, ...]

    @property
    def title(self) -> str:
        """Names of the first and the last layer, and the number of layers."""
        names = " … ".join(dict.fromkeys(layer["name"] for layer in (self.layers[0], self.layers[-1])))
        return f"{names} ({self.size})"

    @property
    def size(self) -> str:
        """Number of layers, as text."""
        return f"{len(self.layers)} layer{'' if len(self.layers) == 1 else 's'}"

    def runs(self, maximum: int) -> list[list[Layer]]:
        """Return runs of at most ``maximum`` layers. A layer that is not pointwise starts a new run."""
        runs: list[list[Layer]] = []
        for layer in self.layers:
            if not runs or layer["kind"] not in POINTWISE or len(runs[-1]) == maximum:
                runs.append([])
            runs[-1].append(layer)
        return runs


def segments(plan: Mapping[str, Any]) -> list[Segment]:
    """Return the segments of a plan in the order of a frame's path; each layer is in one segment."""
    layers = plan["layers"]
    index = {layer["name"]: i for i, layer in enumerate(layers)}
    # Union-find: ``parents`` has a tree of layers for each segment; the root's parent is the root itself.
    parents, hops = list(range(len(layers))), [0] * len(layers)

    def root_of(i: int) -> int:
        while parents[i] != i:
            i = parents[i]
        return i

    for edge in sorted(plan["edges"], key=lambda edge: index[edge["to"]]):
        source, target = index[edge["from"]], index[edge["to"]]
        is_cut = layers[source]["device"] != layers[target]["device"]
        hops[target] = max(hops[target], hops[source] + is_cut)
        if not is_cut:
            parents[root_of(target)] = root_of(source)
    members: dict[int, list[int]] = {}
    for i in range(len(layers)):
        members.setdefault(root_of(i), []).append(i)
    unsorted = [
        Segment(layers[indices[0]]["device"], max(hops[i] for i in indices), tuple(layers[i] for i in indices))
        for indices in sorted(members.values(), key=lambda indices: indices[-1])
    ]
    return sorted(unsorted, key=lambda segment: segment.hop)


def in_order(plan: Mapping[str, Any], connections: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the connections in the order of a frame's path."""
    index = {layer["name"]: i for i, layer in enumerate(plan["layers"])}
    return sorted(
        connections["connections"],
        key=lambda c: (c["hops"], index[c["from"]["layer"]], index[c["to"]["layer"]], c["id"]),
    )


@dataclass
class Card:
    """Card of a device. Cards of even rows are above their part of the switch, others below."""

    device: Mapping[str, Any]
    segments: list[Segment]
    row: int
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0

    @property
    def down(self) -> int:
        """Direction from the card to the switch: 1 for down, −1 for up."""
        return 1 if self.row % 2 == 0 else -1

    @property
    def edge(self) -> float:
        """y coordinate at which the card's wires start and end."""
        return self.y + self.height if self.down == 1 else self.y

    @property
    def columns(self) -> int:
        """Number of columns of runs."""
        return max(1, int((self.width - 4 * PAD) // RUN))

    @property
    def pitch(self) -> float:
        """Distance from a column of runs to the next."""
        return (self.width - 4 * PAD + 8) / self.columns

    @property
    def run_length(self) -> int:
        """Maximum number of layers in a run."""
        return 1 + max(1, int((self.pitch - 8 - LEAD) // (CELL + 1)))

    def height_of(self, segment: Segment | None = None) -> float:
        """Return the height of a segment; without one, the height of the card."""
        if segment is not None:
            return SEGMENT_HEAD + ROW * math.ceil(len(segment.runs(self.run_length)) / self.columns) + 4
        return HEAD + (sum(self.height_of(s) + SEGMENT_GAP for s in self.segments) or 4)


@dataclass(eq=False)
class Wire:
    """Wire of a connection from card to card, through the switch."""

    number: int  #: position in the order of a frame's path, from 1
    connection: Mapping[str, Any]  #: entry of connections.json
    ends: tuple[Card, Card]  #: cards of the source and of the target
    width: int  #: px
    x: list[float] = field(default_factory=lambda: [0.0, 0.0])  #: x at both cards
    y: dict[int, float] = field(default_factory=dict)  #: y of the wire's lane, by index of the bar
    spine: float = 0.0  #: x at which the wire leads from bar to bar

    @property
    def bars(self) -> tuple[int, int]:
        """Indices of the bars (parts of the switch) at which the wire enters and leaves."""
        return self.ends[0].row // 2, self.ends[1].row // 2

    @property
    def title(self) -> str:
        """Description of the connection in one line."""
        c = self.connection
        ends = " → ".join(f"{end['layer']} on {end['device']}" for end in (c["from"], c["to"]))
        rate = f"{c['bits_per_second'] / 1e9:.3g} Gb/s each way"
        return f"{self.number}: {ends}: {rate}, priority {c['priority']}, hop {c['hops']}"

    def path(self) -> list[Point]:
        """Return the wire's path, up to the start of its arrowhead."""
        start, *middle, stop = self.switch_path()
        return [(start[0], self.ends[0].edge), *middle, (stop[0], self.ends[1].edge + 9 * self.ends[1].down)]

    def switch_path(self) -> list[Point]:
        """Return the wire's path between the edges of the switch."""
        (a, b), (start, stop), (source, target) = self.bars, self.x, self.ends
        path = [(start, source.edge + GAP * source.down), (start, self.y[a])]
        if a != b:
            path += [(self.spine, self.y[a]), (self.spine, self.y[b])]
        return [*path, (stop, self.y[b]), (stop, target.edge + GAP * target.down)]


def lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Return a lane for each span, so that spans of a lane do not overlap.

    Shorter spans take the first lanes.
    """
    occupied: list[list[tuple[float, float]]] = []
    lane_of_span = [0] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: spans[i][1] - spans[i][0]):
        low, high = spans[i][0] - LANE / 2, spans[i][1] + LANE / 2
        free_lanes = (n for n, lane in enumerate(occupied) if all(high <= a or b <= low for a, b in lane))
        lane_index = next(free_lanes, len(occupied))
        if lane_index == len(occupied):
            occupied.append([])
        occupied[lane_index].append((low, high))
        lane_of_span[i] = lane_index
    return lane_of_span


class Layout:
    """Layout of cards in the order of a frame's path, the host's first, and of wires between them.

    ``cards``: card of each device, by name.
    ``wires``: wires in the order of a frame's path.
    ``bars``: top and height of each part of the switch.
    ``cards_left``: left edge of the cards. The spine, which joins the parts of the switch, is left of it.
    ``height``: total height.
    """

    def __init__(self, plan: Mapping[str, Any], connections: Mapping[str, Any]):
        plan_segments = segments(plan)
        names = dict.fromkeys([plan["cluster"]["host"], *(segment.device for segment in plan_segments)])
        order = {name: place for place, name in enumerate(names)}
        devices = sorted(plan["cluster"]["devices"], key=lambda device: order.get(device["name"], len(order)))
        count = len(devices)
        self.columns = count if count <= 3 else min(math.ceil(count / 2), COLUMNS)
        self.cards = {
            device["name"]: Card(
                device, [s for s in plan_segments if s.device == device["name"]], i // self.columns
            )
            for i, device in enumerate(devices)
        }
        self.wires = self._wires(in_order(plan, connections))
        self.cards_left = self._spine()
        self._columns()
        self._ports()
        self.bars: list[tuple[float, float]] = []
        self.height = self._rows()

    def _wires(self, connections: Sequence[Mapping[str, Any]]) -> list[Wire]:
        maximum = max((c["bits_per_second"] for c in connections), default=0) or 1
        return [
            Wire(
                number,
                c,
                (self.cards[c["from"]["device"]], self.cards[c["to"]["device"]]),
                max(1, math.ceil(MAX_WIRE_WIDTH * c["bits_per_second"] / maximum)),
            )
            for number, c in enumerate(connections, start=1)
        ]

    def _spine(self) -> float:
        spanning = [wire for wire in self.wires if wire.bars[0] != wire.bars[1]]
        if not spanning:
            return 0.0
        spine_lanes = lanes([(100.0 * min(wire.bars), 100.0 * max(wire.bars)) for wire in spanning])
        left = 2 * BAR_PAD + LANE * max(spine_lanes) + GUTTER
        for wire, lane in zip(spanning, spine_lanes, strict=True):
            wire.spine = left - GUTTER - BAR_PAD - LANE * lane
        return left

    def _columns(self) -> None:
        """Assign cards to columns. Rows alternate in direction, so that a frame's path is short.

        Cards of unused devices follow from left to right.
        """
        width = (WIDTH - 2 - self.cards_left - GUTTER * (self.columns - 1)) / self.columns
        cards = list(self.cards.values())
        for first in range(0, len(cards), self.columns):
            row = cards[first : first + self.columns]
            columns = list(range(self.columns))[:: row[0].down][: len(row)]
            used = sum(bool(card.segments) for card in row)
            for card, column in zip(row, columns[:used] + sorted(columns[used:]), strict=True):
                card.x, card.width = 1 + self.cards_left + column * (width + GUTTER), width

    def _ports(self) -> None:
        """Assign x coordinates to the ends of wires at their cards."""
        for card in self.cards.values():
            ends = [(wire, end) for wire in self.wires for end in (0, 1) if wire.ends[end] is card]
            ends.sort(key=lambda at: _end_order(card, at[0], at[1]))
            for i, (wire, end) in enumerate(ends, start=1):
                wire.x[end] = card.x + 6 + (card.width - 12) * i / (len(ends) + 1)
        for card in self.cards.values():
            if card.down == -1:
                self._align_ends(card)

    def _align_ends(self, card: Card) -> None:
        """Move the ends of a lower card's wires below their other ends, at a distance to other wires."""
        ends = sorted(
            ((wire, end) for wire in self.wires for end in (0, 1) if wire.ends[end] is card),
            key=lambda at: at[0].x[at[1]],
        )
        occupied = [
            (wire, wire.x[end])
            for wire in self.wires
            for end in (0, 1)
            if wire.ends[end].row == card.row - 1 and wire.ends[1 - end].row == card.row
        ]
        distance = min(PORT, (card.width - 12) / (len(ends) + 1))
        low, high = card.x + 6 + distance / 2, card.x + card.width - 6 - distance * (len(ends) - 0.5)
        for wire, end in ends:
            other = wire.ends[1 - end]
            target = wire.x[1 - end] if other.x == card.x and other.row == card.row - 1 else wire.x[end]
            obstacles = [x for obstacle, x in occupied if obstacle is not wire and other.row == card.row - 1]
            wire.x[end] = _free_position(target, (low, high), obstacles)
            low, high = wire.x[end] + distance, high + distance

    def _rows(self) -> float:
        """Assign y coordinates to rows of cards and the parts of the switch. Return the total height."""
        y = TOP
        for row in range(1 + max(card.row for card in self.cards.values())):
            cards = [card for card in self.cards.values() if card.row == row]
            height = max(card.height_of() for card in cards)
            for card in cards:
                card.y, card.height = y, height
            y += height
            if row % 2 == 0 and len(self.cards) > 1:
                self.bars.append((y + GAP, self._bar(row // 2, y + GAP)))
                y += GAP + self.bars[-1][1]
            y += GAP if row % 2 == 0 else 2 * GUTTER
        return y - (2 * GUTTER if row % 2 else GAP) + 2

    def _bar(self, bar: int, top: float) -> float:
        """Assign y coordinates to the lanes of a part of the switch. Return its height."""
        # Wires with both ends above the bar (2), one above and one below (0), and both below (−2), with their
        # spans of x. A wire to the spine counts its only end at this bar twice.
        groups: dict[int, list[tuple[Wire, tuple[float, float]]]] = {2: [], 0: [], -2: []}
        for wire in self.wires:
            ends = [end for end in (0, 1) if wire.bars[end] == bar]
            if ends:
                x = [wire.x[end] for end in ends] + [wire.spine] * (len(ends) == 1)
                down = sum(wire.ends[end].down for end in ends) * 2 // len(ends)
                groups[down].append((wire, (min(x), max(x))))
        y = top + BAR_PAD
        for down, spans in groups.items():
            bar_lanes = lanes([span for _, span in spans])
            last = max(bar_lanes, default=-1)
            for (wire, _), lane in zip(spans, bar_lanes, strict=True):
                wire.y[bar] = y + LANE * (last - lane if down < 0 else lane)
            y += LANE * (last + 1)
        return max(y - LANE + BAR_PAD - top, 2 * BAR_PAD)


def _end_order(card: Card, wire: Wire, end: int) -> tuple[int, float, int]:
    """Return the sort key of a wire's end at a card, from left to right, so that paths nest."""
    other = wire.ends[1 - end]
    if wire.bars[0] != wire.bars[1]:
        return 0, math.inf, wire.number
    if other.x == card.x:
        return 1, 0.0, wire.number
    if other.x < card.x:
        return 0, card.x - other.x, -wire.number
    return 2, card.x - other.x, wire.number


def _free_position(target: float, bounds: tuple[float, float], obstacles: Sequence[float]) -> float:
    """Return the position within ``bounds`` nearest to ``target``, a lane away from all ``obstacles``."""
    low, high = bounds
    target = min(max(target, low), high)
    for step in range(100):
        for x in (target - step, target + step):
            if low <= x <= high and all(abs(x - obstacle) >= LANE - 1 for obstacle in obstacles):
                return x
    return target
