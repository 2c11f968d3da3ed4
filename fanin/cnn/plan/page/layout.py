"""Where everything lies in the drawing of a plan: devices as cards around the switch, wires through it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fanin.report.svg import Point

WIDTH = 960.0
TOP = 62.0  # for the host
COLUMNS = 5  # of cards, at most
GUTTER, GAP = 14.0, 30.0  # between cards; between a card and the switch
PAD, HEAD = 7.0, 30.0  # of a card
SEGMENT_HEAD, SEGMENT_GAP = 24.0, 7.0
ROW, LEAD, CELL, RUN = 18.0, 62.0, 15.0, 138.0  # a run of layers: pitch of rows, its parts, its least width
LANE, BAR_PAD, PORT = 13.0, 20.0, 17.0  # in the switch, and between wires at a card
WIDEST = 7  # wire, px

Layer = Mapping[str, Any]
POINTWISE = {"online_norm": "n", "bias": "b", "relu": "r", "relu6": "r", "add": "+"}  # and their signs


@dataclass(frozen=True)
class Segment:
    """Layers of one device that feed each other without the network, in topological order.

    ``hop``: how often a frame has crossed the network before.
    """

    device: str
    hop: int
    layers: tuple[Layer, ...]

    @property
    def title(self) -> str:
        """The first and the last layer, and how many there are."""
        names = " … ".join(dict.fromkeys(layer["name"] for layer in (self.layers[0], self.layers[-1])))
        return f"{names} ({self.size})"

    @property
    def size(self) -> str:
        """How many layers, in words."""
        return f"{len(self.layers)} layer{'' if len(self.layers) == 1 else 's'}"

    def runs(self, most: int) -> list[list[Layer]]:
        """Its layers, a list for every one that is not pointwise with those behind it, ``most`` in all."""
        runs: list[list[Layer]] = []
        for layer in self.layers:
            if not runs or layer["kind"] not in POINTWISE or len(runs[-1]) == most:
                runs.append([])
            runs[-1].append(layer)
        return runs


def segments(plan: Mapping[str, Any]) -> list[Segment]:
    """Every layer once, segments in the order of a frame's way."""
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
    """The connections as a frame meets them."""
    index = {layer["name"]: i for i, layer in enumerate(plan["layers"])}
    return sorted(
        connections["connections"],
        key=lambda c: (c["hops"], index[c["from"]["layer"]], index[c["to"]["layer"]], c["id"]),
    )


@dataclass
class Card:
    """A device, in its row; even rows lie above their part of the switch."""

    device: Mapping[str, Any]
    segments: list[Segment]
    row: int
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0

    @property
    def down(self) -> int:
        """The way to the switch: 1 down, -1 up."""
        return 1 if self.row % 2 == 0 else -1

    @property
    def edge(self) -> float:
        """Where its wires begin and end."""
        return self.y + self.height if self.down == 1 else self.y

    @property
    def columns(self) -> int:
        """Of runs."""
        return max(1, int((self.width - 4 * PAD) // RUN))

    @property
    def pitch(self) -> float:
        """From a column of runs to the next."""
        return (self.width - 4 * PAD + 8) / self.columns

    @property
    def most(self) -> int:
        """Layers in a run."""
        return 1 + max(1, int((self.pitch - 8 - LEAD) // (CELL + 1)))

    def needs(self, segment: Segment | None = None) -> float:
        """The height of a segment, or of all."""
        if segment is not None:
            return SEGMENT_HEAD + ROW * math.ceil(len(segment.runs(self.most)) / self.columns) + 4
        return HEAD + (sum(self.needs(s) + SEGMENT_GAP for s in self.segments) or 4)


@dataclass(eq=False)
class Wire:
    """A connection, the ``number``th that a frame meets, from card to card."""

    number: int
    connection: Mapping[str, Any]
    ends: tuple[Card, Card]
    width: int
    x: list[float] = field(default_factory=lambda: [0.0, 0.0])
    y: dict[int, float] = field(default_factory=dict)  #: of its lane, per part of the switch
    spine: float = 0.0  #: where it goes from part to part

    @property
    def bars(self) -> tuple[int, int]:
        """The parts of the switch at which it begins and ends."""
        return self.ends[0].row // 2, self.ends[1].row // 2

    @property
    def title(self) -> str:
        """What it is, in a line."""
        c = self.connection
        ends = " → ".join(f"{end['layer']} on {end['device']}" for end in (c["from"], c["to"]))
        rate = f"{c['bits_per_second'] / 1e9:.3g} Gb/s each way"
        return f"{self.number}: {ends}: {rate}, priority {c['priority']}, hop {c['hops']}"

    def points(self) -> list[Point]:
        """Its way, up to where its head begins."""
        start, *way, stop = self.within()
        return [(start[0], self.ends[0].edge), *way, (stop[0], self.ends[1].edge + 9 * self.ends[1].down)]

    def within(self) -> list[Point]:
        """Its way within the switch."""
        (a, b), (start, stop), (source, target) = self.bars, self.x, self.ends
        way = [(start, source.edge + GAP * source.down), (start, self.y[a])]
        if a != b:
            way += [(self.spine, self.y[a]), (self.spine, self.y[b])]
        return [*way, (stop, self.y[b]), (stop, target.edge + GAP * target.down)]


def lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """The lane of each span, so that none meet; the shortest spans take the first lanes."""
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
    """Cards in the order of a frame's way, the host's first, and the wires between them.

    ``bars``: top and height of each part of the switch. ``left``: where the cards begin; the spine, which joins
    the parts, lies before.
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
        """Rows run to and fro, so that neighbours in a frame's way are neighbours; unused devices do not."""
        width = (WIDTH - 2 - self.left - GUTTER * (self.across - 1)) / self.across
        cards = list(self.cards.values())
        for first in range(0, len(cards), self.across):
            row = cards[first : first + self.across]
            columns = list(range(self.across))[:: row[0].down][: len(row)]
            used = sum(bool(card.segments) for card in row)
            for card, column in zip(row, columns[:used] + sorted(columns[used:]), strict=True):
                card.x, card.width = 1 + self.left + column * (width + GUTTER), width

    def _ports(self) -> None:
        """Where wires meet their cards."""
        for card in self.cards.values():
            ends = [(wire, end) for wire in self.wires for end in (0, 1) if wire.ends[end] is card]
            ends.sort(key=lambda at: _side(card, at[0], at[1]))
            for i, (wire, end) in enumerate(ends, start=1):
                wire.x[end] = card.x + 6 + (card.width - 12) * i / (len(ends) + 1)
        for card in self.cards.values():
            if card.down == -1:
                self._make_way(card)

    def _make_way(self, card: Card) -> None:
        """Move a lower card's wires: straight below their other ends, beside those of other wires."""
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
        """Place rows of cards, and the switch between them; the height of all."""
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
        """Place the lanes of a part of the switch; its height."""
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
    """Orders the wires at a card from left to right, so that their ways nest."""
    other = wire.ends[1 - end]
    if wire.bars[0] != wire.bars[1]:
        return 0, math.inf, wire.number
    if other.x == card.x:
        return 1, 0.0, wire.number
    if other.x < card.x:
        return 0, card.x - other.x, -wire.number
    return 2, card.x - other.x, wire.number


def _near(wanted: float, within: tuple[float, float], ways: Sequence[float]) -> float:
    """What lies nearest to ``wanted``, and a lane beside all ``ways``."""
    low, high = within
    wanted = min(max(wanted, low), high)
    for step in range(100):
        for x in (wanted - step, wanted + step):
            if low <= x <= high and all(abs(x - way) >= LANE - 1 for way in ways):
                return x
    return wanted
