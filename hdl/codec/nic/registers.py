"""Registers of INCEPTIONN's NIC; source of the RTL, host driver, C header and documentation."""

from fanin.codec.facts import MAX_BOUND, MIN_BOUND, Inceptionn, Mode
from fanin.hdl.bus.common_registers import identity_registers
from fanin.hdl.bus.register_map import Access, Field, Register, RegisterMap

IDENTITY = 0x50434E49  # "INCP" in memory order
VERSION = 1
BYTES_STEP = 16  # bits of a counter's increment: a frame's length

#: Counters of a direction: the fields of :class:`fanin.hdl.codec.nic.shapes.Events`, and their descriptions.
COUNTERS = {
    "coded": "packets whose payload went through the codec",
    "raw": "packets marked ToS 0x2C on the wire, because they do not shrink",
    "bypassed": "frames passed unchanged",
    "dropped": "frames dropped: bad FCS, too long, or with a broken compressed payload",
    "bytes_in": "bytes of all received frames, without FCS",
    "bytes_out": "bytes of all sent frames, without FCS",
}


def nic_registers() -> RegisterMap:
    """Return the register map of the NIC."""
    default = Inceptionn()
    modes = ", ".join(f"{mode.value} {mode.name.lower()}" for mode in Mode)
    settings = (
        Field("compress", 1, "1: packets with ToS 0x28 are compressed, 0: all frames pass", reset=1),
        Field("decompress", 1, "1: packets with ToS 0x28 and 0x2C are restored, 0: all frames pass", reset=1),
        Field("mode", 1, modes, reset=default.mode),
        Field(
            "bound",
            MAX_BOUND.bit_length(),
            f"b of the error bound 2^-b, {MIN_BOUND}…{MAX_BOUND}",
            reset=default.bound,
        ),
    )
    counters = (
        Register(
            f"{direction}_{name}",
            Access.COUNTER,
            f"{path}: {doc}",
            bits=64,
            step=BYTES_STEP if name.startswith("bytes") else 1,
        )
        for direction, path in (("tx", "host to MAC"), ("rx", "MAC to host"))
        for name, doc in COUNTERS.items()
    )
    registers = (
        *identity_registers(IDENTITY, VERSION),
        Register("max_frame", Access.RO, "bytes of the longest frame, without FCS"),
        Register("control", Access.PULSE, "commands", (Field("clear_counters", 1, "set all counters to 0"),)),
        Register("settings", Access.RW, "change only while no packet with ToS 0x28 is inside", settings),
        *counters,
    )
    return RegisterMap(registers=registers, clear="clear_counters")
