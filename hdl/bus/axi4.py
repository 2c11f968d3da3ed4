"""Wiring signatures of AXI4 read and write ports and of AXI4-Lite, with Arm's signal names."""

from typing import Any

from amaranth import Module
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

BOUNDARY = 4096  # bytes; a burst must not cross a multiple of it (IHI 0022, A3.4.1)
MAX_BURST = 256  # beats of an INCR burst
OUTSTANDING = 64  # default of masters: bursts in flight, at most


class Resp(enum.Enum, shape=2):  # type: ignore[call-arg]
    """Response of a transfer."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Burst(enum.Enum, shape=2):  # type: ignore[call-arg]
    """Address mode of a burst."""

    FIXED = 0
    INCR = 1
    WRAP = 2


# Value of arcache and awcache: normal memory, not cached; Xilinx' interconnects expect it.
CACHE_BUFFERABLE_MODIFIABLE = 0b0011


class _Signature(wiring.Signature):
    """Signature that equals another of its class with the same parameters."""

    def __init__(self, members: dict[str, Any], **parameters: int):
        self.parameters = parameters
        super().__init__(members)

    def __eq__(self, other: object) -> bool:
        other = other.flip() if isinstance(other, wiring.FlippedSignature) else other
        return type(other) is type(self) and other.parameters == self.parameters

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({arguments})"


def check_bursts(*, data_width: int, address_width: int, burst: int, outstanding: int) -> None:
    """Raise ValueError unless a master with these parameters can keep its bursts within 4 KiB."""
    if address_width not in range(12, 65):
        raise ValueError(f"address_width must be from 12 to 64, not {address_width!r}")
    limit = min(MAX_BURST, BOUNDARY * 8 // data_width)
    if burst not in (1 << n for n in range(limit.bit_length())):
        raise ValueError(f"burst must be a power of two from 1 to {limit} words, not {burst!r}")
    if outstanding < 1:
        raise ValueError(f"outstanding must be at least 1, not {outstanding!r}")


def _address_channel(prefix: str, address_width: int, id_width: int) -> dict[str, Any]:
    """Return the members of the channel AR or AW."""
    shapes = {"id": id_width, "addr": address_width, "len": 8, "size": 3, "burst": Burst}
    shapes |= {"lock": 1, "cache": 4, "prot": 3, "qos": 4, "valid": 1}
    return {f"{prefix}{name}": Out(shape) for name, shape in shapes.items()} | {f"{prefix}ready": In(1)}


class _AXI4Signature(_Signature):
    """One direction of AXI4: the address channel with that prefix, and the members of the other channels."""

    def __init__(
        self, prefix: str, other_channels: dict[str, Any], *, data_width: int, address_width: int, id_width: int
    ):
        if data_width not in (8 << n for n in range(8)):
            raise ValueError(f"data_width must be a power of two from 8 to 1024, not {data_width!r}")
        if address_width not in range(1, 65):
            raise ValueError(f"address_width must be from 1 to 64, not {address_width!r}")
        if id_width not in range(33):
            raise ValueError(f"id_width must be from 0 to 32, not {id_width!r}")
        self.data_width = data_width
        self.address_width = address_width
        self.id_width = id_width
        super().__init__(
            _address_channel(prefix, address_width, id_width) | other_channels,
            data_width=data_width,
            address_width=address_width,
            id_width=id_width,
        )


class AXI4ReadSignature(_AXI4Signature):
    """Two read channels of AXI4, seen from the master.

    Members
    -------
    ``arid araddr arlen arsize arburst arlock arcache arprot arqos arvalid`` : Out
    ``arready`` : In
    ``rid rdata rresp rlast rvalid`` : In
    ``rready`` : Out

    Parameters
    ----------
    ``data_width`` : int, bits; a power of two, 8…1024
    ``address_width`` : int, bits; 1…64
    ``id_width`` : int, bits; 0…32; 1 by default; 0 removes ``arid`` and ``rid`` from the Verilog
    """

    def __init__(self, *, data_width: int, address_width: int, id_width: int = 1):
        response = {
            "rid": In(id_width),
            "rdata": In(data_width),
            "rresp": In(Resp),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
        super().__init__("ar", response, data_width=data_width, address_width=address_width, id_width=id_width)


class AXI4WriteSignature(_AXI4Signature):
    """Three write channels of AXI4, seen from the master.

    Members
    -------
    ``awid awaddr awlen awsize awburst awlock awcache awprot awqos awvalid`` : Out
    ``awready`` : In
    ``wdata wstrb wlast wvalid`` : Out
    ``wready`` : In
    ``bid bresp bvalid`` : In
    ``bready`` : Out

    Parameters
    ----------
    ``data_width`` : int, bits; a power of two, 8…1024
    ``address_width`` : int, bits; 1…64
    ``id_width`` : int, bits; 0…32; 1 by default; 0 removes ``awid`` and ``bid`` from the Verilog
    """

    def __init__(self, *, data_width: int, address_width: int, id_width: int = 1):
        data_and_response = {
            "wdata": Out(data_width),
            "wstrb": Out(data_width // 8),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bid": In(id_width),
            "bresp": In(Resp),
            "bvalid": In(1),
            "bready": Out(1),
        }
        super().__init__(
            "aw", data_and_response, data_width=data_width, address_width=address_width, id_width=id_width
        )


def memory_signature(*, data_width: int, address_width: int, id_width: int = 1) -> wiring.Signature:
    """Return a signature with all five channels of AXI4, for reading and writing, seen from the master."""
    axi = {"data_width": data_width, "address_width": address_width, "id_width": id_width}
    return wiring.Signature(dict(AXI4ReadSignature(**axi).members) | dict(AXI4WriteSignature(**axi).members))


def join_memory(m: Module, *, read: Any, write: Any, memory: Any) -> None:
    """Connect an internal read port and write port to one external port of :func:`memory_signature`."""
    for port in read, write:
        for name, member in port.signature.members.items():
            inner, outer = getattr(port, name), getattr(memory, name)
            m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)


class AXI4LiteSignature(_Signature):
    """Five channels of AXI4-Lite, seen from the master.

    Members
    -------
    ``awaddr awprot awvalid wdata wstrb wvalid bready araddr arprot arvalid rready`` : Out
    ``awready wready bresp bvalid arready rdata rresp rvalid`` : In

    Parameters
    ----------
    ``address_width`` : int, bits; 1…64
    ``data_width`` : int, bits; 32 (the default) or 64
    """

    def __init__(self, *, address_width: int, data_width: int = 32):
        if data_width not in (32, 64):
            raise ValueError(f"data_width must be 32 or 64, not {data_width!r}")
        if address_width not in range(1, 65):
            raise ValueError(f"address_width must be from 1 to 64, not {address_width!r}")
        self.address_width = address_width
        self.data_width = data_width
        super().__init__(
            {
                "awaddr": Out(address_width),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(data_width),
                "wstrb": Out(data_width // 8),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(Resp),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_width),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(data_width),
                "rresp": In(Resp),
                "rvalid": In(1),
                "rready": Out(1),
            },
            address_width=address_width,
            data_width=data_width,
        )
