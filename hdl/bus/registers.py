"""Register file: a register map as an AXI4-Lite slave."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.carry import LUT_INPUTS
from fanin.hdl.bus.axi4 import AXI4LiteSignature, Resp
from fanin.hdl.bus.register_map import WORD_BITS, WORD_BYTES, Access, Register, RegisterMap

GROUP_WORDS = 8  # words that one read multiplexer selects from, in one cycle
GROUP_BITS = (GROUP_WORDS - 1).bit_length()
JOINED_GROUPS = 5  # of which one is chosen in the next cycle


class WindowSignature(wiring.Signature):
    """Host accesses handed to the hardware, as the register file sees them; one at a time.

    ``read`` or ``write`` rises and holds, ``write_data`` with it, until the cycle in which ``ready`` is
    high; it answers the request, and is ignored without one. ``read_data`` counts in that cycle alone. A
    hardware that counts its address up does so in it.

    Members
    -------
    ``read`` : Out(1)
    ``write`` : Out(1)
    ``write_data`` : Out(32)
    ``read_data`` : In(32)
    ``ready`` : In(1)
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "read": Out(1),
                "write": Out(1),
                "write_data": Out(WORD_BITS),
                "read_data": In(WORD_BITS),
                "ready": In(1),
            }
        )

    def __eq__(self, other: object) -> bool:
        other = other.flip() if isinstance(other, wiring.FlippedSignature) else other
        return type(other) is type(self)

    def __repr__(self) -> str:
        return "WindowSignature()"


def _members(registers: RegisterMap) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for register in registers.registers:
        for field in register.parts:
            member = {
                Access.RO: In(field.bits),
                Access.RW: Out(field.bits, init=field.reset),
                Access.PULSE: Out(field.bits),
                Access.COUNTER: In(register.step),
                Access.WINDOW: Out(WindowSignature()),
            }[register.access]
            members[field.name] = member.array(register.count) if register.count > 1 else member
    return members


class RegisterFile(wiring.Component):
    """The registers of a map behind an AXI4-Lite slave.

    One access at a time, the oldest write before a read; AW may come before, with or after W. Addresses
    outside the map or no multiple of 4, writes to ``ro`` and ``counter`` registers, and writes to a
    ``window`` with less than all strobes answer SLVERR and do nothing (reads return 0). Byte strobes are
    honoured: a ``pulse`` bit whose byte is not written stays 0. A 64-bit counter is read low word first;
    that read keeps the high half of the same moment, and reading any counter's high word returns it.

    Members
    -------
    ``axil`` : In, :class:`AXI4LiteSignature`
    Further members are the fields of ``registers``, by name (of a register without fields, its own), an
    array where the register is one: ``ro`` In(bits), ``rw`` Out(bits), ``pulse`` Out(bits), one cycle per
    write; ``counter`` In(step), what to add in this cycle; ``window`` Out, :class:`WindowSignature`.

    Parameters
    ----------
    ``registers`` : RegisterMap

    Latency
    -------
    Read: R 5 cycles after AR. Write: B 5 cycles after the later of AW and W; fields change with B. Back to
    back, an access every 6 cycles. A window adds the cycles until ``ready``.

    Source
    ------
    docs/reference/glm-registers.md; Arm IHI 0022.
    """

    def __init__(self, *, registers: RegisterMap):
        self.registers = registers
        members = _members(registers)
        reserved = {"axil", *dir(self)} & members.keys()
        if reserved:
            raise ValueError(f"registers must not have a field called {', '.join(sorted(reserved))}")
        axil = AXI4LiteSignature(address_width=registers.address_bits)
        super().__init__({"axil": In(axil), **members})

    def elaborate(self, platform: Any) -> Module:
        """Held requests, one state machine, and per register what its access asks for."""
        m = Module()
        bus = _Slave(self.axil)
        for number, register, index, word in self.registers.words():
            getattr(self, f"_{register.access}")(m, bus, number, register, index, word)
        bus.elaborate(m)
        return m

    def _port(self, name: str, register: Register, index: int) -> Any:
        port = getattr(self, name)
        return port[index] if register.count > 1 else port

    def _value(self, register: Register, index: int, word: int) -> Any:
        value = Cat(self._port(field.name, register, index) for field in register.parts)
        return value[WORD_BITS * word : WORD_BITS * (word + 1)]

    def _ro(self, m: Module, bus: _Slave, number: int, register: Register, index: int, word: int) -> None:
        bus.readable[number] = self._value(register, index, word)

    def _rw(self, m: Module, bus: _Slave, number: int, register: Register, index: int, word: int) -> None:
        value = self._value(register, index, word)
        bus.readable[number] = value
        bus.writable.append(number)
        with m.If(bus.written(m, number)):
            for byte, strobe in enumerate(bus.strobes):
                part = slice(8 * byte, 8 * byte + 8)
                if part.start < len(value):
                    with m.If(strobe):
                        m.d.sync += value[part].eq(bus.data[part])

    def _pulse(self, m: Module, bus: _Slave, number: int, register: Register, index: int, word: int) -> None:
        value = self._value(register, index, word)
        bus.readable[number] = Const(0)
        bus.writable.append(number)
        m.d.sync += value.eq(0)
        with m.If(bus.written(m, number)):
            m.d.sync += value.eq(bus.data & Cat(strobe.replicate(8) for strobe in bus.strobes))

    def _counter(self, m: Module, bus: _Slave, number: int, register: Register, index: int, word: int) -> None:
        if word:
            return  # both words are made with the first
        low = Signal(WORD_BITS)
        carry = Signal()
        m.d.sync += Cat(low, carry).eq(low + self._port(register.name, register, index))
        bus.readable[number] = low
        reset = [low.eq(0), carry.eq(0)]
        if register.words == 2:
            high = Signal(WORD_BITS)
            m.d.sync += high.eq(high + carry)
            bus.readable[number + 1] = high
            bus.high_words.append(number + 1)
            reset.append(high.eq(0))
        if self.registers.clear is not None:
            with m.If(getattr(self, self.registers.clear)):
                m.d.sync += reset

    def _window(self, m: Module, bus: _Slave, number: int, register: Register, index: int, word: int) -> None:
        bus.readable[number] = Const(0)
        bus.writable.append(number)
        bus.windows[number] = self._port(register.name, register, index)


class _Slave:
    """The AXI4-Lite channels: one access after the other, and the words that it may reach.

    The register file fills ``readable`` (values by word number), ``writable``, ``high_words`` and
    ``windows``, and writes a word in the cycle that :meth:`written` names. All that the address says is
    registered before ACCESS, which so has short paths.
    """

    def __init__(self, axil: Any):
        self.axil = axil
        self.readable: dict[int, Any] = {}
        self.writable: list[int] = []
        self.high_words: list[int] = []
        self.windows: dict[int, Any] = {}
        self.groups: dict[int, Signal] = {}
        self.address = Signal(len(axil.araddr))  # of the access that is being carried out
        self.number = self.address[2:]
        self.data = Signal(WORD_BITS)
        self.strobes = Signal(WORD_BYTES)
        self.is_write = Signal()
        self.pick = Signal(GROUP_BITS)  # the word in its group; a cycle later, a counter's high one
        self.access = Signal()  # high while the access is carried out: one cycle, or a window's wait
        self.done = Signal()

    def in_group(self, m: Module, group: int) -> Signal:
        """Whether the address is that of a word of ``group``, from SELECT on; never for an unaligned one."""
        if group not in self.groups:
            self.groups[group] = signal = Signal(name=f"in_group{group}")
            m.d.sync += signal.eq((self.number[GROUP_BITS:] == group) & (self.address[:2] == 0))
        return self.groups[group]

    def at(self, m: Module, name: str, words: Iterable[int]) -> Any:
        """Whether the address is that of one of ``words``, from ACCESS on."""
        places: dict[int, list[int]] = {}
        for word in words:
            places.setdefault(word // GROUP_WORDS, []).append(word % GROUP_WORDS)
        low = self.number[:GROUP_BITS]
        hits = [self.in_group(m, group) & low.matches(*place) for group, place in places.items()]
        parts = Signal(max(1, -(-len(hits) // JOINED_GROUPS)), name=name)
        for part, first in zip(parts, range(0, len(hits), JOINED_GROUPS), strict=False):
            m.d.sync += part.eq(Cat(hits[first : first + JOINED_GROUPS]).any())
        return parts.any()

    def written(self, m: Module, number: int) -> Any:
        """Whether this cycle writes the word of that number."""
        return self.access & self.is_write & self.at(m, f"at_{number}", [number])

    def elaborate(self, m: Module) -> None:
        """Take a request, decode its address, carry it out, answer it."""
        axil = self.axil
        write_address = Signal.like(self.address)
        read_address = Signal.like(self.address)
        aw = self._held(m, "aw", (write_address, axil.awaddr))
        w = self._held(m, "w", (self.data, axil.wdata), (self.strobes, axil.wstrb))
        ar = self._held(m, "ar", (read_address, axil.araddr))
        self._carry_out(m)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += self.is_write.eq(aw & w)
                m.d.sync += self.address.eq(Mux(aw & w, write_address, read_address))
                m.d.sync += self.pick.eq(Mux(aw & w, write_address, read_address)[2:])
                with m.If(aw & w | ar):
                    m.next = "DECODE"
            with m.State("DECODE"):
                m.d.sync += self.pick[0].eq(self.number[0] | self._is_low())
                m.next = "SELECT"
            with m.State("SELECT"):
                m.d.sync += self.access.eq(1)
                m.next = "ACCESS"
            with m.State("ACCESS"), m.If(self.done):
                m.d.sync += self.access.eq(0)
                m.d.sync += [axil.bvalid.eq(self.is_write), axil.rvalid.eq(~self.is_write)]
                m.next = "RESPONSE"
            with m.State("RESPONSE"), m.If(axil.bvalid & axil.bready | axil.rvalid & axil.rready):
                m.d.sync += [axil.bvalid.eq(0), axil.rvalid.eq(0)]
                with m.If(self.is_write):
                    m.d.sync += [aw.eq(0), w.eq(0)]
                with m.Else():
                    m.d.sync += ar.eq(0)
                m.next = "IDLE"

    def _is_low(self) -> Any:
        """Whether the address is that of a counter's low word, tables of one LUT each telling."""
        tables: dict[int, list[int]] = {}
        for word in (high - 1 for high in self.high_words):
            tables.setdefault(word >> LUT_INPUTS, []).append(word % (1 << LUT_INPUTS))
        low, high = self.number[:LUT_INPUTS], self.number[LUT_INPUTS:]
        return Cat((high == table) & low.matches(*hits) for table, hits in tables.items()).any()

    def _held(self, m: Module, channel: str, *captures: tuple[Signal, Any]) -> Signal:
        """A request channel's register; ``ready`` says that it is free."""
        held = Signal(name=f"{channel}_held")
        ready, valid = getattr(self.axil, f"{channel}ready"), getattr(self.axil, f"{channel}valid")
        m.d.comb += ready.eq(~held)
        with m.If(valid & ready):
            m.d.sync += held.eq(1)
            m.d.sync += [register.eq(port) for register, port in captures]
        return held

    def _carry_out(self, m: Module) -> None:
        """The response: whether the map allows the access, and what is read; windows are waited for."""
        can_read = self.at(m, "can_read", self.readable)
        can_write = self.at(m, "can_write", self.writable)
        at_window = self.at(m, "at_window", self.windows)
        partial = Signal()
        m.d.comb += partial.eq(at_window & self.is_write & ~self.strobes.all())
        ready = Signal()
        answer = Signal(WORD_BITS)
        for number, window in self.windows.items():
            here = self.at(m, f"at_{number}", [number])
            m.d.comb += [
                window.write_data.eq(self.data),
                window.write.eq(self.access & self.is_write & here & ~partial),
                window.read.eq(self.access & ~self.is_write & here),
            ]
            with m.If(here):
                m.d.comb += [ready.eq(window.ready), answer.eq(window.read_data)]
        m.d.comb += self.done.eq(~at_window | partial | ready)
        good = Mux(self.is_write, can_write & ~partial, can_read)
        response = Mux(good, Resp.OKAY, Resp.SLVERR)
        word = self._select(m)
        with m.If(self.access):
            m.d.sync += [self.axil.bresp.eq(response), self.axil.rresp.eq(response)]
            m.d.sync += self.axil.rdata.eq(word | answer)

    def _select(self, m: Module) -> Any:
        """The addressed word, 0 if there is none, from multiplexers with registers between them.

        Of a counter, the high half of the moment when its low word was read: it passes the first
        multiplexer a cycle after the low half, and so has taken the carry that the low half had left behind
        when it was read, and nothing later.
        """
        groups = []
        for group in sorted({word // GROUP_WORDS for word in self.readable}):
            chosen = Signal(WORD_BITS, name=f"group{group}")
            words = range(group * GROUP_WORDS, (group + 1) * GROUP_WORDS)
            values = Cat(Signal.like(chosen, name=f"word{word}") for word in words)
            for k, word in enumerate(words):
                m.d.comb += values.word_select(k, WORD_BITS).eq(self.readable.get(word, 0))
            m.d.sync += chosen.eq(values.word_select(self.pick, WORD_BITS))
            groups.append(chosen & self.in_group(m, group).replicate(WORD_BITS))
        live: Any = Const(0)
        for first in range(0, len(groups), JOINED_GROUPS):
            joined = Signal(WORD_BITS, name=f"joined{first}")
            m.d.sync += joined.eq(reduce(or_, groups[first : first + JOINED_GROUPS]))
            live = live | joined
        kept = Signal(WORD_BITS)
        keep = Signal()
        at_low = self.at(m, "at_low", [word - 1 for word in self.high_words])
        m.d.sync += keep.eq(self.access & ~self.is_write & at_low)
        with m.If(keep):
            m.d.sync += kept.eq(live)
        return Mux(self.at(m, "at_high", self.high_words), kept, live)
