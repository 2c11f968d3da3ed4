"""Timing model of an HBM pseudo-channel: the rules of docs/reference/memory.md, applied to accesses in order.

Ports request bursts; a burst becomes one access per block. :func:`serve` is the controller: it takes the ports'
accesses in turn into a queue. :class:`PseudoChannel` is the memory: for each access it schedules PRECHARGE,
ACTIVATE and READ, each at the earliest cycle that all timing rules allow. Accesses are never reordered. Cycles
are those of the memory's clock, except a burst's ``edge``, which counts edges of the ports' clock.

sim/cosim/hbm.cpp implements the same rules for a running simulation, and is compared with this model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from fanin.hbm import BLOCK_BYTES, CHANNELS, Hbm

_LONG_AGO = -(1 << 60)
_FOUR = 4


class Kind(Enum):
    """A command on the row or the column bus."""

    ACTIVATE = "ACT"
    READ = "RD"
    PRECHARGE = "PRE"
    REFRESH = "REF"


@dataclass(frozen=True)
class Command:
    """A command and its cycle; ``group`` and ``bank`` are -1 for a command to all banks."""

    kind: Kind
    cycle: int
    group: int = -1
    bank: int = -1
    row: int = -1


@dataclass(frozen=True)
class Place:
    """Location of a block in its pseudo-channel."""

    group: int
    bank: int  #: number within the group
    row: int
    column: int


def place(hbm: Hbm, block: int) -> Place:
    """Return the location of a block by the address map."""
    coordinates = dict.fromkeys("GBC", 0)
    width = len(hbm.address_map)
    for index, bit in enumerate(hbm.address_map):
        coordinates[bit] = 2 * coordinates[bit] + (block >> (width - 1 - index) & 1)
    return Place(coordinates["G"], coordinates["B"], block >> width, coordinates["C"])


@dataclass
class _Bank:
    """A bank: its open row, and the cycles of its last activation and read."""

    row: int | None = None
    activated: int = _LONG_AGO
    read: int = _LONG_AGO


class PseudoChannel:
    """Banks with their open rows, and refreshes; call ``read`` in the order in which accesses are served.

    The first refresh is due one tREFI plus ``number`` sixteenths of one after the start.
    """

    def __init__(self, hbm: Hbm, number: int = 0):
        self.hbm = hbm
        self.commands: list[Command] = []
        self._banks: dict[tuple[int, int], _Bank] = {}
        # Cycles of the last four activations, and of the last activation and read by group.
        self._activates: deque[int] = deque([_LONG_AGO] * _FOUR, maxlen=_FOUR)
        self._group_activates: dict[int, int] = {}
        self._group_reads: dict[int, int] = {}
        self._last_read = _LONG_AGO
        self._refresh_end = 0  # first cycle after a refresh at which banks may be activated
        self._refresh_due = hbm.refresh + number % CHANNELS * hbm.refresh // CHANNELS

    def read(self, block: int, known_at: int) -> int:
        """Read a block, known to the controller since cycle ``known_at``; return the read command's cycle."""
        location = place(self.hbm, block)
        while (planned := self._plan(location, known_at))[-1].cycle >= self._refresh_due:
            self._refresh()
        bank = self._bank(location)
        for command in planned:
            if command.kind is Kind.ACTIVATE:
                bank.row, bank.activated = location.row, command.cycle
                self._activates.append(command.cycle)
                self._group_activates[location.group] = command.cycle
        self.commands += planned
        self._last_read = self._group_reads[location.group] = bank.read = planned[-1].cycle
        return bank.read

    def _bank(self, location: Place) -> _Bank:
        return self._banks.setdefault((location.group, location.bank), _Bank())

    def _plan(self, location: Place, known_at: int) -> list[Command]:
        """Return the commands for a read, each as early as possible."""
        hbm, bank = self.hbm, self._bank(location)
        commands: list[Command] = []
        activate = bank.activated
        if bank.row != location.row:
            activate = max(
                known_at,
                self._refresh_end,
                self._activates[-1] + hbm.activates,
                self._activates[0] + hbm.four_activates,
                self._group_activates.get(location.group, _LONG_AGO) + hbm.activates_same_group,
            )
            if bank.row is not None:
                precharge = max(
                    known_at, bank.activated + hbm.activate_to_precharge, bank.read + hbm.read_to_precharge
                )
                commands.append(Command(Kind.PRECHARGE, precharge, location.group, location.bank))
                activate = max(activate, precharge + hbm.precharge)
            commands.append(Command(Kind.ACTIVATE, activate, location.group, location.bank, location.row))
        read = max(
            known_at,
            activate + hbm.activate_to_read,
            self._last_read + hbm.access,
            self._group_reads.get(location.group, _LONG_AGO) + hbm.same_group,
        )
        return [*commands, Command(Kind.READ, read, location.group, location.bank, location.row)]

    def _refresh(self) -> None:
        """Close all banks, then refresh them."""
        hbm = self.hbm
        begin = self._refresh_due
        open_banks = [bank for bank in self._banks.values() if bank.row is not None]
        if open_banks:
            precharge = max(
                begin,
                *(bank.activated + hbm.activate_to_precharge for bank in open_banks),
                *(bank.read + hbm.read_to_precharge for bank in open_banks),
            )
            self.commands.append(Command(Kind.PRECHARGE, precharge))
            begin = precharge + hbm.precharge
        self.commands.append(Command(Kind.REFRESH, begin))
        for bank in open_banks:
            bank.row = None
        self._refresh_end = begin + hbm.refresh_cycle
        self._refresh_due += hbm.refresh


@dataclass(frozen=True)
class Burst:
    """A burst that a port requests at a rising edge: ``beats`` words of ``word_bytes`` from ``address`` on."""

    edge: int
    address: int
    beats: int
    word_bytes: int


@dataclass
class _Access:
    """An access of a port to a block, which the controller knows of from cycle ``arrival`` on."""

    block: int
    arrival: int
    words: int  # words of the burst in the block


@dataclass
class _Port:
    """A port: its waiting accesses in order, and the arrival times in ps of words read."""

    waiting: deque[_Access] = field(default_factory=deque)
    arrived: list[int] = field(default_factory=list)


def serve(hbm: Hbm, bursts: Sequence[Sequence[Burst]], *, period_ps: int, number: int = 0) -> list[list[int]]:
    """Return the arrival time in ps of each word of each port's bursts at a pseudo-channel.

    ``bursts``: bursts of each port, in order. The controller accepts at most one access every ``access``
    cycles, round-robin over the ports that have one, and answers in that order.
    """
    ports = [_Port(_accesses(hbm, port_bursts, index, period_ps)) for index, port_bursts in enumerate(bursts)]
    channel = PseudoChannel(hbm, number)
    # Read cycles of the accesses in the queue, at which they leave it; the oldest one makes room.
    queue_reads: deque[int] = deque([_LONG_AGO] * hbm.queue, maxlen=hbm.queue)
    entry, served_port = _LONG_AGO, len(ports) - 1  # of the last access that entered the queue
    while first_arrivals := [port.waiting[0].arrival for port in ports if port.waiting]:
        entry = max(entry + hbm.access, queue_reads[0], min(first_arrivals))
        port_order = [(served_port + step) % len(ports) for step in range(1, len(ports) + 1)]
        served_port = next(n for n in port_order if ports[n].waiting and ports[n].waiting[0].arrival <= entry)
        access = ports[served_port].waiting.popleft()
        read = channel.read(access.block, entry)
        queue_reads.append(read)
        arrived = (read + hbm.cas_latency + hbm.access + hbm.from_controller) * hbm.period_ps
        ports[served_port].arrived += [arrived] * access.words
    return [port.arrived for port in ports]


def _accesses(hbm: Hbm, bursts: Sequence[Burst], index: int, period_ps: int) -> deque[_Access]:
    """Return the accesses to the blocks that a port's bursts cover."""
    accesses: deque[_Access] = deque()
    for burst in bursts:
        arrival = -(-burst.edge * period_ps // hbm.period_ps) + hbm.to_controller
        blocks = [(burst.address + beat * burst.word_bytes) // BLOCK_BYTES for beat in range(burst.beats)]
        for block in dict.fromkeys(blocks):
            number = block * hbm.ports_per_channel + index
            accesses.append(_Access(number, arrival, blocks.count(block)))
    return accesses
