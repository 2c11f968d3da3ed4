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
from fanin.sim.switch.bmv2.exchange import Exchange, choose_marker_port, marker_entries
from fanin.sim.switch.bmv2.frames import Frames, StreamFrames, VethFrames
from fanin.sim.switch.bmv2.p4runtime import CompiledProgram, P4Runtime, connect
from fanin.sim.switch.bmv2.process import BmvProcess
from fanin.sim.switch.bmv2.thrift import Registers
from fanin.sim.switch.program import split_words

P = ParamSpec("P")
R = TypeVar("R")
Resource = TypeVar("Resource", P4Runtime, Registers, Frames)
START_TIMEOUT = 60.0  # seconds until the switch must answer; it usually takes one
_DEATH_DELAY = 1.0  # seconds between the end of a connection and the end of its process


class RegisterAccess(Protocol):
    """Registers of a running switch, through Thrift or P4Runtime."""

    def read(self, name: str, index: int) -> int:
        """Return the value of a register's cell."""

    def write_range(self, name: str, start: int, end: int, value: int) -> None:
        """Set the cells from ``start`` up to ``end`` (exclusive)."""


class ControlPlane:
    """A pipeline's tables, groups and counters through P4Runtime, and its registers through ``registers``."""

    def __init__(self, config: ProgramConfig, control: P4Runtime, registers: Callable[[], RegisterAccess]):
        self._words = register_words(config)
        self._registers = functools.cache(registers)
        self.insert: Callable[[TableEntry], None] = self._checked(control.insert)
        self.delete: Callable[[TableEntry], None] = self._checked(control.delete)
        self.set_multicast_group: Callable[[MulticastGroup], None] = self._checked(control.set_multicast_group)
        self.delete_multicast_group: Callable[[int], None] = self._checked(control.delete_multicast_group)
        self.direct_counter: Callable[[TableEntry], tuple[int, int]] = self._checked(control.direct_counter)

    def reset_register(self, name: str, start: int, count: int) -> None:
        """Set a range of a register to 0."""
        self._checked(self._registers().write_range)(name, start, start + count, 0)

    def read_register(self, name: str, index: int) -> tuple[int, ...]:
        """Return an entry's 32-bit words."""
        return split_words(self._checked(self._registers().read)(name, index), self._words[name])

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Raise NotImplementedError: frames go to the switch's own ports."""
        raise NotImplementedError("frames reach a running switch at its ports")

    def _checked(self, call: Callable[P, R]) -> Callable[P, R]:
        return call


class Bmv2Pipeline(ControlPlane):
    """``simple_switch_grpc`` with a compiled program, without entries. Calls raise ToolFailed if it has died.

    With ``veth``, frames travel over veth pairs in a network namespace, which needs root; otherwise over BMv2's
    gRPC data plane. Call ``close`` at the end.

    - ``frames``: way of the frames to and from the switch.
    """

    def __init__(
        self, config: ProgramConfig, program: CompiledProgram, ports: Sequence[int], *, veth: bool | None = None
    ):
        marker_port = choose_marker_port(ports)
        all_ports = [*ports, marker_port]
        self._resources = contextlib.ExitStack()
        self.bmv2 = BmvProcess(all_ports, veth=may_have_namespace() if veth is None else veth)
        try:
            control = self._close_later(
                connect(self.bmv2.p4runtime, program, timeout=START_TIMEOUT, check_alive=self.bmv2.check)
            )
            registers = self._close_later(Registers(self.bmv2.thrift_socket()))
            super().__init__(config, control, lambda: registers)
            veth_or_stream = VethFrames(self.bmv2, all_ports) if self.bmv2.veth else StreamFrames(self.bmv2)
            self.frames: Frames = self._close_later(veth_or_stream)
            self._exchange = Exchange(self.frames, ports, marker_port, self.bmv2.check)
            for entry in marker_entries(marker_port):
                self.insert(entry)
        except BaseException:
            self.close()
            raise

    def _close_later(self, resource: Resource) -> Resource:
        self._resources.callback(resource.close)
        return resource

    def close(self) -> None:
        """Stop the switch."""
        self.bmv2.close()
        self._resources.close()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that a frame causes, as (port, frame), by port; ValueError for one too short."""
        with self._explain_death():
            return self._exchange.process(port, frame)

    def _checked(self, call: Callable[P, R]) -> Callable[P, R]:
        """Wrap ``call`` so that its failure after the switch's death names this cause."""

        @functools.wraps(call)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._explain_death():
                return call(*args, **kwargs)

        return checked

    @contextlib.contextmanager
    def _explain_death(self) -> Iterator[None]:
        try:
            yield
        except (ToolFailed, OSError):
            self.bmv2.check(_DEATH_DELAY)
            raise
