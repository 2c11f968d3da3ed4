"""Register file: a register map as an AXI4-Lite slave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature, Resp
from fanin.hdl.bus.counter_memory import SETTLE, CounterMemory
from fanin.hdl.bus.register_map import WORD_BITS, WORD_BYTES, Access, Register, RegisterMap

GROUP_BITS = 4  # lower bits of a word's number, which select in a group of words; the others select a group


class WindowSignature(wiring.Signature):
    """Host accesses passed to the hardware, seen from the register file; one at a time.

    Members
    -------
    ``read`` : Out(1)
        Read request; held until ``ready``.
    ``write`` : Out(1)
        Write request; held until ``ready``.
    ``write_data`` : Out(32)
        Word to write; held with ``write``.
    ``read_data`` : In(32)
        Word that was read; sampled only in the cycle of ``ready``.
    ``ready`` : In(1)
        The hardware answers the request in this cycle; ignored without a request. Hardware that increments its
        address does so in this cycle.
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
    """Return a register file's members by field name; the access gives direction and shape."""
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
    """Registers of a map, as an AXI4-Lite slave.

    One access at a time, the oldest write before a read; AW may come before, with or after W.

    These accesses answer SLVERR and do nothing (reads return 0):

    - addresses outside the map or at no multiple of 4;
    - writes to ``ro`` and ``counter`` registers;
    - writes to a ``window`` without all strobes.

    Byte strobes are honoured: a ``pulse`` bit whose byte is not written stays 0. Read a 64-bit counter low word
    first: that read keeps the high word of the same moment, which the next read of any counter's high word
    returns.

    Members
    -------
    ``axil`` : In, :class:`AXI4LiteSignature`
        Bus of the host.

    Further members are the fields of ``registers``, by name; a register without fields is a member itself. A
    register array gives an array of members. Direction and shape depend on the access:

    - ``ro``: In(bits), the value that the host reads.
    - ``rw``: Out(bits), the value that the host wrote.
    - ``pulse``: Out(bits), high for one cycle per write.
    - ``counter``: In(step), the number to add in this cycle.
    - ``window``: Out, :class:`WindowSignature`.

    Parameters
    ----------
    ``registers`` : RegisterMap
        Map of the registers.
    ``counters_in_memory`` : bool
        Keep all counters, at least two of 64 bits each, in a :class:`CounterMemory`: smaller and slower. False
        by default.

    Latency
    -------
    Read: R 5 cycles after AR. Write: B 5 cycles after the later of AW and W; fields change with B. Back to
    back, an access every 6 cycles. A window adds the cycles until ``ready``, the low word of a counter in
    memory ``CounterMemory.lag`` + 5.

    Source
    ------
    docs/reference/glm-registers.md; Arm IHI 0022.
    """

    def __init__(self, *, registers: RegisterMap, counters_in_memory: bool = False):
        self.registers = registers
        self.counters_in_memory = counters_in_memory
        members = _members(registers)
        reserved = {"axil", *dir(self)} & members.keys()
        if reserved:
            raise ValueError(f"registers must not have a field called {', '.join(sorted(reserved))}")
        if counters_in_memory:
            _counter_words(registers)
        axil = AXI4LiteSignature(address_width=registers.address_bits)
        super().__init__({"axil": In(axil), **members})

    def elaborate(self, platform: Any) -> Module:
        """Build the slave, and the logic of each word by its register's access.

        ``_ro``, ``_rw``, ``_pulse``, ``_counter`` and ``_window`` build word ``word`` of element ``index`` of
        ``register``, which is word ``number`` of the map.
        """
        m = Module()
        bus = _Slave(self.axil)
        for number, register, index, word in self.registers.words():
            getattr(self, f"_{register.access}")(m, bus, number, register, index, word)
        if self.counters_in_memory:
            self._counter_memory(m, bus)
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
        with m.If(bus.is_written(m, number)):
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
        with m.If(bus.is_written(m, number)):
            m.d.sync += value.eq(bus.data & Cat(strobe.replicate(8) for strobe in bus.strobes))

    def _counter(self, m: Module, bus: _Slave, number: int, register: Register, index: int, word: int) -> None:
        if word or self.counters_in_memory:
            return  # built with the first word, or all at once in memory
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

    def _counter_memory(self, m: Module, bus: _Slave) -> None:
        """Build all counters in a memory; they are adjacent in the map."""
        numbers, lows = _counter_words(self.registers)
        m.submodules.counters = memory = CounterMemory(widths=tuple(register.step for _, register, *_ in lows))
        for n, (_, register, index, _) in enumerate(lows):
            m.d.comb += memory.steps[f"counter{n}"].eq(self._port(register.name, register, index))
        if self.registers.clear is not None:
            m.d.comb += memory.clear.eq(getattr(self, self.registers.clear))
        bus.memory, bus.in_memory, bus.high_words = memory, numbers, numbers[1::2]

    def _window(self, m: Module, bus: _Slave, number: int, register: Register, index: int, word: int) -> None:
        bus.readable[number] = Const(0)
        bus.writable.append(number)
        bus.windows[number] = self._port(register.name, register, index)


def _counter_words(registers: RegisterMap) -> tuple[list[int], list[tuple[int, Register, int, int]]]:
    """Return the numbers of the counters' words, and the low words as entries of ``RegisterMap.words``.

    Raises ValueError unless a memory can hold them: at least two, of 64 bits each, and adjacent.
    """
    words = [entry for entry in registers.words() if entry[1].access is Access.COUNTER]
    numbers = [number for number, *_ in words]
    lows = [entry for entry in words if entry[3] == 0]
    if len(lows) < 2:
        raise ValueError(f"counters in memory must be at least 2, not {len(lows)}")
    are_adjacent = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    if len(words) != 2 * len(lows) or not are_adjacent:
        raise ValueError("counters in memory must have 64 bits and follow one another")
    return numbers, lows


class _Slave:
    """AXI4-Lite channels of a register file: executes one access at a time on the words of the map.

    The register file fills ``readable`` (values by word number), ``writable``, ``high_words`` and ``windows``.
    It writes a word in the cycle in which :meth:`is_written` is high.

    States of an access:

    - IDLE takes a pending request.
    - DECODE and SELECT compare its address, into registers (:meth:`at`), and select the word to read.
    - ACCESS executes it, in one cycle or, for a window, when the window is ready.
    - RESPONSE waits for the host.
    """

    def __init__(self, axil: Any):
        self.axil = axil
        self.readable: dict[int, Any] = {}
        self.writable: list[int] = []
        self.high_words: list[int] = []
        self.windows: dict[int, Any] = {}
        self.memory: Any = None  # memory of the counters, whose words are ``in_memory``; None if there is none
        self.in_memory: list[int] = []
        self.memory_pending: Any = Const(0)  # in state SELECT: the counters in memory are not up to date
        self.address = Signal(len(axil.araddr))  # address of the current access
        self.number = self.address[2:]
        self.data = Signal(WORD_BITS)
        self.strobes = Signal(WORD_BYTES)
        self.is_write = Signal()
        self.decoding = Signal()
        self.access = Signal()  # high while the access is executed: one cycle, or until a window is ready
        self.done = Signal()

    def at(self, m: Module, name: str, words: Iterable[int]) -> Signal:
        """Return whether the address is that of one of ``words``; valid from SELECT on."""
        hit = Signal(name=name)
        m.d.sync += hit.eq(self.address.matches(*(WORD_BYTES * word for word in words)))
        return hit

    def is_written(self, m: Module, number: int) -> Any:
        """Return whether this cycle writes the word with that number."""
        return self.access & self.is_write & self.at(m, f"at_{number}", [number])

    def elaborate(self, m: Module) -> None:
        """Build the channels and the states: take a request, decode its address, execute and answer it."""
        axil = self.axil
        write_address = Signal.like(self.address)
        read_address = Signal.like(self.address)
        has_address = self._hold_request(m, "aw", (write_address, axil.awaddr))
        has_data = self._hold_request(m, "w", (self.data, axil.wdata), (self.strobes, axil.wstrb))
        has_read = self._hold_request(m, "ar", (read_address, axil.araddr))
        self._execute(m)
        with m.FSM() as fsm:
            m.d.comb += self.decoding.eq(fsm.ongoing("DECODE"))
            with m.State("IDLE"):
                m.d.sync += self.is_write.eq(has_address & has_data)
                m.d.sync += self.address.eq(Mux(has_address & has_data, write_address, read_address))
                with m.If(has_address & has_data | has_read):
                    m.next = "DECODE"
            with m.State("DECODE"):
                m.next = "SELECT"
            if self.memory is not None:
                self._await_memory(m, fsm.ongoing("SELECT"))
            with m.State("SELECT"), m.If(~self.memory_pending):
                m.d.sync += self.access.eq(1)
                m.next = "ACCESS"
            with m.State("ACCESS"), m.If(self.done):
                m.d.sync += self.access.eq(0)
                m.d.sync += [axil.bvalid.eq(self.is_write), axil.rvalid.eq(~self.is_write)]
                m.next = "RESPONSE"
            with m.State("RESPONSE"), m.If(axil.bvalid & axil.bready | axil.rvalid & axil.rready):
                m.d.sync += [axil.bvalid.eq(0), axil.rvalid.eq(0)]
                with m.If(self.is_write):
                    m.d.sync += [has_address.eq(0), has_data.eq(0)]
                with m.Else():
                    m.d.sync += has_read.eq(0)
                m.next = "IDLE"

    def _await_memory(self, m: Module, selecting: Any) -> None:
        """Before a counter is read, wait until all events are in memory, then stop the memory's updates.

        ``waited_cycles`` counts the cycles in SELECT:

        - from 0: each counter has its turn, so all events until SELECT enter the memory;
        - at ``memory.lag``: ``hold`` stops the turns;
        - at ``memory.lag`` + SETTLE: memory has stopped changing, and SELECT ends.

        Low and high word are addressed in SELECT's last cycle and in ACCESS, so both are of the same moment.
        """
        memory, first_word = self.memory, self.in_memory[0]
        settle_cycles = memory.lag + SETTLE
        waited_cycles = Signal(range(settle_cycles + 1))
        up_to_date = Signal()
        at_low = self.at(m, "at_counter", [high - 1 for high in self.high_words])
        m.d.sync += waited_cycles.eq(Mux(selecting & (waited_cycles != settle_cycles), waited_cycles + 1, 0))
        m.d.sync += up_to_date.eq(selecting & (waited_cycles >= memory.lag - 1))  # 1: the register's own cycle
        self.memory_pending = at_low & ~self.is_write & (waited_cycles != settle_cycles)
        m.d.comb += [
            memory.hold.eq(up_to_date | self.access & at_low),
            # A low word's number is even, since a counter of two words is at a multiple of 8 bytes.
            memory.address.eq(Cat(self.number[0] | self.access, self.number[1:]) - first_word),
        ]

    def _hold_request(self, m: Module, channel: str, *captures: tuple[Signal, Any]) -> Signal:
        """Hold a channel's request in registers until it is answered; return whether a request is held."""
        is_held = Signal(name=f"{channel}_held")
        ready, valid = getattr(self.axil, f"{channel}ready"), getattr(self.axil, f"{channel}valid")
        m.d.comb += ready.eq(~is_held)
        with m.If(valid & ready):
            m.d.sync += is_held.eq(1)
            m.d.sync += [register.eq(port) for register, port in captures]
        return is_held

    def _execute(self, m: Module) -> None:
        """Execute ACCESS.

        Check that the map allows the access, return the word read, wait for a window's ``ready``.
        """
        can_read = self.at(m, "can_read", [*self.readable, *self.in_memory])
        can_write = self.at(m, "can_write", self.writable)
        at_window = self.at(m, "at_window", self.windows)
        partial = Signal()
        m.d.comb += partial.eq(at_window & self.is_write & ~self.strobes.all())
        window_ready = Signal()
        window_word = Signal(WORD_BITS)  # 0 unless a window is read
        for number, window in self.windows.items():
            selected = self.at(m, f"at_{number}", [number])
            m.d.comb += [
                window.write_data.eq(self.data),
                window.write.eq(self.access & self.is_write & selected & ~partial),
                window.read.eq(self.access & ~self.is_write & selected),
            ]
            with m.If(selected):
                m.d.comb += [window_ready.eq(window.ready), window_word.eq(window.read_data)]
        m.d.comb += self.done.eq(~at_window | partial | window_ready)
        is_allowed = Mux(self.is_write, can_write & ~partial, can_read)
        response = Mux(is_allowed, Resp.OKAY, Resp.SLVERR)
        word = Mux(can_read, self._select(m), 0)  # 0 for a window, whose word comes from the hardware
        with m.If(self.access):
            m.d.sync += [self.axil.bresp.eq(response), self.axil.rresp.eq(response)]
            m.d.sync += self.axil.rdata.eq(word | window_word)

    def _select(self, m: Module) -> Any:
        """Return the addressed word, valid in ACCESS.

        A word is selected in each group in one cycle, and then the group in the next. A read of a counter's low
        word also stores the high word of the same moment in ``high_half``, for the next read of a high word:

        - DECODE: ``index_in_group`` is that of the low word.
        - SELECT: ``index_in_group`` is that of the high word; the groups' registers have the low word.
        - ACCESS: ``selected_word`` is the low word, which is answered.
        - A cycle later: ``selected_word`` is the high word, which by now includes the carry of that low word.
          ``high_half`` takes it (``low_was_read``).
        """
        low_words = [high - 1 for high in self.high_words]
        at_low = self.at(m, "at_low", low_words)
        at_high = self.at(m, "at_high", self.high_words)
        index_in_group = Cat(self.number[0] | at_low & ~self.decoding, self.number[1:GROUP_BITS])
        groups = []
        for first in range(0, max(self.readable) + 1, 1 << GROUP_BITS):
            words = [self.readable.get(first + n, Const(0)) for n in range(1 << GROUP_BITS)]
            groups.append(_select_word(m, f"group{first >> GROUP_BITS}", words, index_in_group))
        group_bits = (len(groups) - 1).bit_length()
        selected_word = _select_word(
            m, "selected_word", groups, self.number[GROUP_BITS : GROUP_BITS + group_bits]
        )
        if self.memory is not None:
            selected_word = Mux(at_low, self.memory.word, selected_word)
        high_half = Signal(WORD_BITS)
        low_was_read = Signal()
        m.d.sync += low_was_read.eq(self.access & ~self.is_write & at_low)
        with m.If(low_was_read):
            m.d.sync += high_half.eq(self.memory.word if self.memory is not None else selected_word)
        return Mux(at_high, high_half, selected_word)


def _select_word(m: Module, name: str, words: list[Any], index: Any) -> Signal:
    """Return the word at ``index``, a cycle later; 0 if ``words`` has no such entry."""
    table = Signal(WORD_BITS << len(index), name=f"{name}_words")
    selected = Signal(WORD_BITS, name=name)
    m.d.comb += [table.word_select(n, WORD_BITS).eq(word) for n, word in enumerate(words)]
    m.d.sync += selected.eq(table.word_select(index, WORD_BITS))
    return selected
