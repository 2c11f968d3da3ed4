"""Layout of the drawing of a plan: devices as cards around the switch, wires through the switch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fanin.report.svg import Point

WIDTH = 960.0
TOP = 62.0  # room for the host
COLUMNS = 5  # most columns of cards
GUTTER, GAP = 14.0, 30.0  # between cards; between a card and the switch
PAD, HEAD = 7.0, 30.0  # padding and height of the title of a card
SEGMENT_HEAD, SEGMENT_GAP = 24.0, 7.0
ROW, LEAD, CELL, RUN = 18.0, 62.0, 15.0, 138.0  # a run of layers: pitch of rows, its parts, its least width
LANE, BAR_PAD, PORT = 13.0, 20.0, 17.0  # in the switch, and between wires at a card
WIDEST = 7  # wire, px

Layer = Mapping[str, Any]
POINTWISE = {"online_norm": "n", "bias": "b", "relu": "r", "relu6": "r", "add": "+"}  # and their signs


@dataclass(frozen=True)
class Segment:
    """Segment of layers of one device that feed each other directly, in topological order.

    ``hop``: number of times that a frame has crossed the network before.
    """

    device: str
    hop: int
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

    def runs(self, most: int) -> list[list[Layer]]:
        """Return runs of at most ``most`` layers; a layer that is not pointwise starts a new run."""
        runs: list[list[Layer]] = []
        for layer in self.layers:
            if not runs or layer["kind"] not in POINTWISE or len(runs[-1]) == most:
                runs.append([])
            runs[-1].append(layer)
        return runs


def segments(plan: Mapping[str, Any]) -> list[Segment]:
    """Return the segments of a plan in the order of a frame's path; each layer is in one segment."""
    layers = plan["layers"]
    index = {layer["name"]: i for i, layer in enumerate(layers)}
    root, hops = list(range(len(layers))), [0] * len(layers)

    def find(i: int) -> int:
        while root[i] != i:
            i = root[i]
        return i

    for edge in sorted(plan["edges"], key=lambda edge: index[edge["to"]]):
        source, target = index[edge["from"]], index[edge["to"]]
        cut = layers[source]["device"] != layers[target]["device"]
        hops[target] = max(hops[target], hops[source] + cut)
        if not cut:
            root[find(target)] = find(source)
    members: dict[int, list[int]] = {}
    for i in range(len(layers)):
        members.setdefault(find(i), []).append(i)
    found = [
        Segment(layers[part[0]]["device"], max(hops[i] for i in part), tuple(layers[i] for i in part))
        for part in sorted(members.values(), key=lambda part: part[-1])
    ]
    return sorted(found, key=lambda segment: segment.hop)


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
        """Direction to the switch: 1 down, -1 up."""
        return 1 if self.row % 2 == 0 else -1

    @property
    def edge(self) -> float:
        """y coordinate at which its wires start and end."""
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
    def most(self) -> int:
        """Largest number of layers in a run."""
        return 1 + max(1, int((self.pitch - 8 - LEAD) // (CELL + 1)))

    def needs(self, segment: Segment | None = None) -> float:
        """Return the height of a segment; without one, the height of the card."""
        if segment is not None:
            return SEGMENT_HEAD + ROW * math.ceil(len(segment.runs(self.most)) / self.columns) + 4
        return HEAD + (sum(self.needs(s) + SEGMENT_GAP for s in self.segments) or 4)


@dataclass(eq=False)
class Wire:
    """Wire of a connection from card to card. ``number``: position in the order of a frame's path, from 1."""

    number: int
    connection: Mapping[str, Any]
    ends: tuple[Card, Card]
    width: int
    x: list[float] = field(default_factory=lambda: [0.0, 0.0])
    y: dict[int, float] = field(default_factory=dict)  #: y of its lane, by part of the switch
    spine: float = 0.0  #: x at which it goes from part to part

    @property
    def bars(self) -> tuple[int, int]:
        """Parts of the switch at which it starts and ends."""
        return self.ends[0].row // 2, self.ends[1].row // 2

    @property
    def title(self) -> str:
        """Description in a line."""
        c = self.connection
        ends = " → ".join(f"{end['layer']} on {end['device']}" for end in (c["from"], c["to"]))
        rate = f"{c['bits_per_second'] / 1e9:.3g} Gb/s each way"
        return f"{self.number}: {ends}: {rate}, priority {c['priority']}, hop {c['hops']}"

    def points(self) -> list[Point]:
        """Return its path, up to the start of its arrowhead."""
        start, *way, stop = self.within()
        return [(start[0], self.ends[0].edge), *way, (stop[0], self.ends[1].edge + 9 * self.ends[1].down)]

    def within(self) -> list[Point]:
        """Return its path within the switch."""
        (a, b), (start, stop), (source, target) = self.bars, self.x, self.ends
        way = [(start, source.edge + GAP * source.down), (start, self.y[a])]
        if a != b:
            way += [(self.spine, self.y[a]), (self.spine, self.y[b])]
        return [*way, (stop, self.y[b]), (stop, target.edge + GAP * target.down)]


def lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Return the lane of each span, so that no spans overlap. Shorter spans take the first lanes."""
    taken: list[list[tuple[float, float]]] = []
    chosen = [0] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: spans[i][1] - spans[i][0]):
        low, high = spans[i][0] - LANE / 2, spans[i][1] + LANE / 2
        fits = (n for n, lane in enumerate(taken) if all(high <= a or b <= low for a, b in lane))
        free = next(fits, len(taken))
        if free == len(taken):
            taken.append([])
        taken[free].append((low, high))
        chosen[i] = free
    return chosen


class Layout:
    """Layout of cards in the order of a frame's path, the host's first, and of wires between them.

    ``bars``: top and height of each part of the switch.
    ``left``: left edge of the cards. The spine, which joins the parts, is to its left.
    """

    def __init__(self, plan: Mapping[str, Any], connections: Mapping[str, Any]):
        found = segments(plan)
        names = dict.fromkeys([plan["cluster"]["host"], *(segment.device for segment in found)])
        met = {name: place for place, name in enumerate(names)}
        devices = sorted(plan["cluster"]["devices"], key=lambda device: met.get(device["name"], len(met)))
        count = len(devices)
        self.across = count if count <= 3 else min(math.ceil(count / 2), COLUMNS)
        self.cards = {
            device["name"]: Card(device, [s for s in found if s.device == device["name"]], i // self.across)
            for i, device in enumerate(devices)
        }
        self.wires = self._wires(in_order(plan, connections))
        self.left = self._spine()
        self._columns()
        self._ports()
        self.bars: list[tuple[float, float]] = []
        self.height = self._rows()

    def _wires(self, connections: Sequence[Mapping[str, Any]]) -> list[Wire]:
        most = max((c["bits_per_second"] for c in connections), default=0) or 1
        return [
            Wire(
                number,
                c,
                (self.cards[c["from"]["device"]], self.cards[c["to"]["device"]]),
                max(1, math.ceil(WIDEST * c["bits_per_second"] / most)),
            )
            for number, c in enumerate(connections, start=1)
        ]

    def _spine(self) -> float:
        far = [wire for wire in self.wires if wire.bars[0] != wire.bars[1]]
        if not far:
            return 0.0
        chosen = lanes([(100.0 * min(wire.bars), 100.0 * max(wire.bars)) for wire in far])
        left = 2 * BAR_PAD + LANE * max(chosen) + GUTTER
        for wire, lane in zip(far, chosen, strict=True):
            wire.spine = left - GUTTER - BAR_PAD - LANE * lane
        return left

    def _columns(self) -> None:
        """Place cards in columns. Rows alternate in direction, so that a frame's path is short.

        Unused devices follow from left to right.
        """
        width = (WIDTH - 2 - self.left - GUTTER * (self.across - 1)) / self.across
        cards = list(self.cards.values())
        for first in range(0, len(cards), self.across):
            row = cards[first : first + self.across]
            columns = list(range(self.across))[:: row[0].down][: len(row)]
            used = sum(bool(card.segments) for card in row)
            for card, column in zip(row, columns[:used] + sorted(columns[used:]), strict=True):
                card.x, card.width = 1 + self.left + column * (width + GUTTER), width

    def _ports(self) -> None:
        """Place the ends of wires at their cards."""
        for card in self.cards.values():
            ends = [(wire, end) for wire in self.wires for end in (0, 1) if wire.ends[end] is card]
            ends.sort(key=lambda at: _side(card, at[0], at[1]))
            for i, (wire, end) in enumerate(ends, start=1):
                wire.x[end] = card.x + 6 + (card.width - 12) * i / (len(ends) + 1)
        for card in self.cards.values():
            if card.down == -1:
                self._make_way(card)

    def _make_way(self, card: Card) -> None:
        """Move a lower card's wires straight below their other ends, with distance to other wires."""
        ends = sorted(
            ((wire, end) for wire in self.wires for end in (0, 1) if wire.ends[end] is card),
            key=lambda at: at[0].x[at[1]],
        )
        taken = [
            (wire, wire.x[end])
            for wire in self.wires
            for end in (0, 1)
            if wire.ends[end].row == card.row - 1 and wire.ends[1 - end].row == card.row
        ]
        apart = min(PORT, (card.width - 12) / (len(ends) + 1))
        low, high = card.x + 6 + apart / 2, card.x + card.width - 6 - apart * (len(ends) - 0.5)
        for wire, end in ends:
            other = wire.ends[1 - end]
            wanted = wire.x[1 - end] if other.x == card.x and other.row == card.row - 1 else wire.x[end]
            ways = [x for way, x in taken if way is not wire and other.row == card.row - 1]
            wire.x[end] = _near(wanted, (low, high), ways)
            low, high = wire.x[end] + apart, high + apart

    def _rows(self) -> float:
        """Place the rows of cards and the switch between them. Return the total height."""
        y = TOP
        for row in range(1 + max(card.row for card in self.cards.values())):
            cards = [card for card in self.cards.values() if card.row == row]
            height = max(card.needs() for card in cards)
            for card in cards:
                card.y, card.height = y, height
            y += height
            if row % 2 == 0 and len(self.cards) > 1:
                self.bars.append((y + GAP, self._bar(row // 2, y + GAP)))
                y += GAP + self.bars[-1][1]
            y += GAP if row % 2 == 0 else 2 * GUTTER
        return y - (2 * GUTTER if row % 2 else GAP) + 2

    def _bar(self, bar: int, top: float) -> float:
        """Place the lanes of a part of the switch. Return its height."""
        groups: dict[int, list[tuple[Wire, tuple[float, float]]]] = {
            2: [],
            0: [],
            -2: [],
        }  # above, through, below
        for wire in self.wires:
            ends = [end for end in (0, 1) if wire.bars[end] == bar]
            if ends:
                x = [wire.x[end] for end in ends] + [wire.spine] * (len(ends) == 1)
                down = sum(wire.ends[end].down for end in ends) * 2 // len(ends)
                groups[down].append((wire, (min(x), max(x))))
        y = top + BAR_PAD
        for down, legs in groups.items():
            chosen = lanes([span for _, span in legs])
            last = max(chosen, default=-1)
            for (wire, _), lane in zip(legs, chosen, strict=True):
                wire.y[bar] = y + LANE * (last - lane if down < 0 else lane)
            y += LANE * (last + 1)
        return max(y - LANE + BAR_PAD - top, 2 * BAR_PAD)


def _side(card: Card, wire: Wire, end: int) -> tuple[int, float, int]:
    """Return the sort key of a wire's end at a card, from left to right, so that paths nest."""
    other = wire.ends[1 - end]
    if wire.bars[0] != wire.bars[1]:
        return 0, math.inf, wire.number
    if other.x == card.x:
        return 1, 0.0, wire.number
    if other.x < card.x:
        return 0, card.x - other.x, -wire.number
    return 2, card.x - other.x, wire.number


def _near(wanted: float, within: tuple[float, float], ways: Sequence[float]) -> float:
    """Return the position nearest to ``wanted`` that keeps a lane's distance from all ``ways``."""
    low, high = within
    wanted = min(max(wanted, low), high)
    for step in range(100):
        for x in (wanted - step, wanted + step):
            if low <= x <= high and all(abs(x - way) >= LANE - 1 for way in ways):
                return x
    return wanted
