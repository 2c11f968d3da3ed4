"""The emitted program in a real BMv2, as :class:`fanin.sim.switch.program.Pipeline`.

BMv2 says nothing when it is done with a frame. So each frame is followed by a marker, a frame of other traffic
that leaves at every port: BMv2 takes frames one by one through ingress and keeps their order at each port, so
whatever the frame caused at a port is there before the marker is. Over veth pairs, where frames of *different*
ports may overtake each other on their way in, a first marker goes the frame's own way, to the spare port that
markers are sent from: once it is there, the frame is through ingress. What comes behind its marker nevertheless
is an error, not the next frame's answer.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from fanin.errors import ToolFailed
from fanin.p4.control import MulticastGroup, TableEntry, Ternary
from fanin.p4.deployment import MAX_PORT
from fanin.p4.installation import FLOOD, FORWARD
from fanin.p4.program import ProgramConfig, register_words
from fanin.sim.switch.bmv2.frames import Frames, StreamFrames, VethFrames
from fanin.sim.switch.bmv2.p4runtime import CompiledProgram, P4Runtime, connect
from fanin.sim.switch.bmv2.process import BmvProcess
from fanin.sim.switch.bmv2.thrift import Registers
from fanin.sim.switch.program import split_words

P = ParamSpec("P")
R = TypeVar("R")
Opened = TypeVar("Opened", P4Runtime, Registers, Frames)
START = 60.0  # seconds until it answers; it takes one, on an idle machine
_PATIENCE = 20.0  # seconds until a marker is back; it takes a millisecond
_DYING = 1.0  # seconds between the end of a connection and that of the process behind it
_MARKER_MAC = 0x02_FA_91_4B_52_4D
_BROADCAST = 0xFFFF_FFFF_FFFF
_ETHERTYPE = 0x88B6  # IEEE's second one for experiments
_PRIORITY = 100  # above all other entries


def _marker_entries(spare: int) -> tuple[TableEntry, TableEntry]:
    """Markers go to the spare port, and from there to all others. Their counters are nobody's."""
    to_spare = {"destination": Ternary(_MARKER_MAC, _BROADCAST)}
    from_spare = {"port": Ternary(spare, MAX_PORT | 1)}
    return (
        TableEntry(FORWARD, to_spare, "Aggregation.to_port", {"to": spare}, priority=_PRIORITY),
        TableEntry(FORWARD, from_spare, FLOOD.action, priority=_PRIORITY + 1),
    )


class ControlPlane:
    """A pipeline's tables, groups and counters through P4Runtime, its registers through Thrift."""

    def __init__(self, config: ProgramConfig, control: P4Runtime, registers: Callable[[], Registers]):
        self._words = register_words(config)
        self._registers = functools.cache(registers)
        self.insert: Callable[[TableEntry], None] = self._watched(control.insert)
        self.delete: Callable[[TableEntry], None] = self._watched(control.delete)
        self.set_multicast_group: Callable[[MulticastGroup], None] = self._watched(control.set_multicast_group)
        self.delete_multicast_group: Callable[[int], None] = self._watched(control.delete_multicast_group)
        self.direct_counter: Callable[[TableEntry], tuple[int, int]] = self._watched(control.direct_counter)

    def reset_register(self, name: str, start: int, count: int) -> None:
        """Set a range of a register to 0."""
        self._watched(self._registers().write_range)(name, start, start + count, 0)

    def read_register(self, name: str, index: int) -> tuple[int, ...]:
        """An entry's 32-bit words."""
        return split_words(self._watched(self._registers().read)(name, index), self._words[name])

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Frames go to the switch's own ports."""
        raise NotImplementedError("frames reach a running switch at its ports")

    def _watched(self, call: Callable[P, R]) -> Callable[P, R]:
        return call


class Bmv2Pipeline(ControlPlane):
    """``simple_switch_grpc`` with a compiled program, without entries. Calls raise ToolFailed when it has died.

    ``veth``: frames travel over veth pairs in a network namespace, for which one must be root; else over BMv2's
    gRPC data plane. Close it.
    """

    def __init__(
        self, config: ProgramConfig, program: CompiledProgram, ports: Sequence[int], *, veth: bool | None = None
    ):
        self._ports = frozenset(ports)
        self._spare = next(port for port in range(MAX_PORT, -1, -1) if port not in self._ports)
        self._token = os.urandom(8)
        self._count = 0
        self._opened = contextlib.ExitStack()
        everything = [*ports, self._spare]
        self.bmv2 = BmvProcess(everything, veth=os.geteuid() == 0 if veth is None else veth)
        try:
            control = self._keep(connect(self.bmv2.p4runtime, program, limit=START, alive=self.bmv2.check))
            registers = self._keep(Registers(self.bmv2.thrift_socket()))
            super().__init__(config, control, lambda: registers)
            frames = VethFrames(self.bmv2, everything) if self.bmv2.veth else StreamFrames(self.bmv2)
            self._frames: Frames = self._keep(frames)
            for entry in _marker_entries(self._spare):
                self.insert(entry)
        except BaseException:
            self.close()
            raise

    def _keep(self, opened: Opened) -> Opened:
        self._opened.callback(opened.close)
        return opened

    def close(self) -> None:
        """Stop the switch."""
        self.bmv2.close()
        self._opened.close()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """What a frame causes, as (port, frame), by port; ValueError for one too short to travel."""
        with self._alive():
            self._expect_nothing()
            self._frames.send(port, frame)
            out = []
            if not self._frames.ordered:
                out += self._await(self._mark(port, _MARKER_MAC), {self._spare})
            out += self._await(self._mark(self._spare, _BROADCAST), set(self._ports))
        return sorted(out, key=operator.itemgetter(0))  # stable: a port's frames keep their order

    def _mark(self, port: int, mac: int) -> bytes:
        self._count += 1
        addresses = mac.to_bytes(6, "big") + _MARKER_MAC.to_bytes(6, "big")
        marker = addresses + _ETHERTYPE.to_bytes(2, "big") + self._token + self._count.to_bytes(8, "big")
        self._frames.send(port, marker)
        return marker

    def _await(self, marker: bytes, ports: set[int]) -> list[tuple[int, bytes]]:
        """What comes until the marker has come at ``ports``."""
        out = []
        end = time.monotonic() + _PATIENCE
        while ports:
            received = self._frames.receive(max(0.0, end - time.monotonic()))
            if received is None:
                self.bmv2.check()
                if time.monotonic() < end:
                    raise ToolFailed(f"simple_switch_grpc closed its data plane; {self.bmv2.last_lines()}")
                where = ", ".join(map(str, sorted(ports)))
                raise ToolFailed(
                    f"simple_switch_grpc forwarded nothing to port {where} in {_PATIENCE:g} s; "
                    f"{self.bmv2.last_lines()}"
                )
            if received[1] == marker:
                ports.discard(received[0])
            else:
                out.append(received)
        return out

    def _expect_nothing(self) -> None:
        late = self._frames.receive(0)
        if late:
            raise ToolFailed(f"simple_switch_grpc let a frame at port {late[0]} be overtaken: {late[1].hex()}")

    def _watched(self, call: Callable[P, R]) -> Callable[P, R]:
        """Where a call fails because the switch died, say that."""

        @functools.wraps(call)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._alive():
                return call(*args, **kwargs)

        return watched

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (ToolFailed, OSError):
            self.bmv2.check(_DYING)
            raise
