"""The headers in front of a link's payload: their layout, what is right of them, and what is sent."""

from __future__ import annotations

from typing import Any

from amaranth import Const, Module, Mux, Value
from amaranth.lib import data

from fanin.hdl.net.checksum import WORD_BITS, OnesComplementSum
from fanin.hdl.net.headers import header_layout
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, TTL, UDP, Encap
from fanin.wire.fields import byte_length
from fanin.wire.link import ETHERTYPE_LINK, LINK_CONTROL_BYTES, LINK_PORT, TOS_SHIFT, LinkFormat

_IP_VERSION = 4
_IP_WORDS = byte_length(IPV4) // 4
# Bytes that IPv4's length counts beside the payload's; a control frame has no others.
_IP_OVERHEAD = LINK_CONTROL_BYTES - byte_length(ETHERNET)


def header_view(form: LinkFormat, encap: Encap) -> data.StructLayout:
    """All that is in front of a payload, as a big-endian number: ``ethernet``, with UDP ``ipv4``, ``link``."""
    members: dict[str, Any] = {"link": header_layout(form.fields)}
    if encap is Encap.UDP:
        behind = 8 * (form.header_bytes(encap) - form.header_at(encap) - byte_length(form.fields))
        members = {"zeros": behind, **members, "udp": header_layout(UDP), "ipv4": header_layout(IPV4)}
    return data.StructLayout(members | {"ethernet": header_layout(ETHERNET)})


def is_other_traffic(header: Any, encap: Encap) -> Value:
    """Whether what is in front of the link's own header says that it is no frame of a link."""
    if encap is Encap.L2:
        return header.ethernet.ethertype != ETHERTYPE_LINK
    ip = header.ipv4
    return (
        (header.ethernet.ethertype != ETHERTYPE_IPV4)
        | (ip.version != _IP_VERSION)
        | (ip.ihl != _IP_WORDS)
        | ip.flags[0]  # more fragments
        | ip.fragment.any()
        | (ip.protocol != IP_PROTOCOL_UDP)
        | (header.udp.destination_port != LINK_PORT)
    )


def comes_from(header: Any, job: Any, end: str, encap: Encap) -> Value:
    """Whether the source is the ``previous`` or the ``next`` end of a job."""
    if encap is Encap.L2:
        return header.ethernet.source == job[f"{end}_mac"]
    return header.ipv4.source == job[f"{end}_ip"]


def header_sums(m: Module, job: Any) -> dict[str, Value]:
    """Of IPv4's headers to the ``previous`` and to the ``next`` end: the sum of all but the payload's bytes.

    A job stands still, so that it may take its cycles.
    """
    # What is alike in all headers, as one word: the length is the only other one that a frame changes.
    fixed = (TTL << 8) + IP_PROTOCOL_UDP + (_IP_VERSION << 12) + (_IP_WORDS << 8) + _IP_OVERHEAD
    words = {"fixed": Const(fixed, WORD_BITS), "tos": job.priority << TOS_SHIFT}
    sums = {}
    for end in ("previous", "next"):
        m.submodules[f"sum_{end}"] = part = OnesComplementSum(words=len(words) + 4)
        addresses = (job.own_ip, job[f"{end}_ip"])
        halves = [ip[at : at + WORD_BITS] for ip in addresses for at in (0, WORD_BITS)]
        m.d.comb += [i.eq(word) for i, word in zip(part.i, [*words.values(), *halves], strict=True)]
        sums[end] = part.o
    return sums


def addressed(
    header: Any, job: Any, encap: Encap, *, answer: Value, payload_bytes: Value, header_sum: Value
) -> list[Any]:
    """Assignments that fill what is in front of the link's own header.

    An ``answer`` goes to the end before, all else to the next one. IPv4 has ``payload_bytes`` in its length;
    ``header_sum``, 17 bits, is their sum with that of :func:`header_sums`.
    """
    ethertype = ETHERTYPE_LINK if encap is Encap.L2 else ETHERTYPE_IPV4
    filled = [
        header.ethernet.destination.eq(Mux(answer, job.previous_mac, job.next_mac)),
        header.ethernet.source.eq(job.own_mac),
        header.ethernet.ethertype.eq(ethertype),
    ]
    if encap is Encap.L2:
        return filled
    ip, udp = header.ipv4, header.udp
    return [
        *filled,
        ip.version.eq(_IP_VERSION),
        ip.ihl.eq(_IP_WORDS),
        ip.tos.eq(job.priority << TOS_SHIFT),
        ip.length.eq(payload_bytes + _IP_OVERHEAD),
        ip.ttl.eq(TTL),
        ip.protocol.eq(IP_PROTOCOL_UDP),
        ip.checksum.eq(~(header_sum[:WORD_BITS] + header_sum[WORD_BITS])),
        ip.source.eq(job.own_ip),
        ip.destination.eq(Mux(answer, job.previous_ip, job.next_ip)),
        udp.source_port.eq(LINK_PORT),
        udp.destination_port.eq(LINK_PORT),
        udp.length.eq(payload_bytes + _IP_OVERHEAD - byte_length(IPV4)),
    ]
