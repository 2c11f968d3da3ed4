"""The emitted program in a real BMv2, as :class:`fanin.sim.switch.program.Pipeline`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, Protocol, TypeVar

from fanin.base.errors import ToolFailed
from fanin.host.lab import may_have_namespace
from fanin.p4.aggregation import ProgramConfig, register_words
from fanin.p4.control import MulticastGroup, TableEntry
from fanin.sim.switch.bmv2.exchange import Exchange, marker_entries, spare_port
from fanin.sim.switch.bmv2.frames import Frames, StreamFrames, VethFrames
from fanin.sim.switch.bmv2.p4runtime import CompiledProgram, P4Runtime, connect
from fanin.sim.switch.bmv2.process import BmvProcess
from fanin.sim.switch.bmv2.thrift import Registers
from fanin.sim.switch.program import split_words

P = ParamSpec("P")
R = TypeVar("R")
Opened = TypeVar("Opened", P4Runtime, Registers, Frames)
START = 60.0  # seconds until the switch must answer; it usually takes one
_DYING = 1.0  # seconds between the end of a connection and the end of its process


class RegisterAccess(Protocol):
    """Registers of a running switch, through Thrift or P4Runtime."""

    def read(self, name: str, index: int) -> int:
        """Return a cell."""

    def write_range(self, name: str, start: int, end: int, value: int) -> None:
        """Set cells."""


class ControlPlane:
    """A pipeline's tables, groups and counters through P4Runtime, and its registers through ``registers``."""

    def __init__(self, config: ProgramConfig, control: P4Runtime, registers: Callable[[], RegisterAccess]):
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
        """Return an entry's 32-bit words."""
        return split_words(self._watched(self._registers().read)(name, index), self._words[name])

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Raise NotImplementedError: frames go to the switch's own ports."""
        raise NotImplementedError("frames reach a running switch at its ports")

    def _watched(self, call: Callable[P, R]) -> Callable[P, R]:
        return call


class Bmv2Pipeline(ControlPlane):
    """``simple_switch_grpc`` with a compiled program, without entries. Calls raise ToolFailed if it has died.

    With ``veth``, frames travel over veth pairs in a network namespace, which needs root; otherwise over BMv2's
    gRPC data plane. Call ``close`` at the end.
    """

    def __init__(
        self, config: ProgramConfig, program: CompiledProgram, ports: Sequence[int], *, veth: bool | None = None
    ):
        spare = spare_port(ports)
        everything = [*ports, spare]
        self._opened = contextlib.ExitStack()
        self.bmv2 = BmvProcess(everything, veth=may_have_namespace() if veth is None else veth)
        try:
            control = self._keep(connect(self.bmv2.p4runtime, program, limit=START, alive=self.bmv2.check))
            registers = self._keep(Registers(self.bmv2.thrift_socket()))
            super().__init__(config, control, lambda: registers)
            frames = VethFrames(self.bmv2, everything) if self.bmv2.veth else StreamFrames(self.bmv2)
            self._exchange = Exchange(self._keep(frames), ports, spare, self.bmv2.check)
            for entry in marker_entries(spare):
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
        """Return the frames that a frame causes, as (port, frame), by port; ValueError for one too short."""
        with self._alive():
            return self._exchange.process(port, frame)

    def _watched(self, call: Callable[P, R]) -> Callable[P, R]:
        """Wrap a call, so that a failure after the switch's death names this cause."""

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
