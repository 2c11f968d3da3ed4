"""Headers before a link's payload: their layout, their check, and their construction."""

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
# IPv4's length of a frame without payload, which is that of a control frame.
_IP_OVERHEAD = LINK_CONTROL_BYTES - byte_length(ETHERNET)


def header_view(form: LinkFormat, encap: Encap) -> data.StructLayout:
    """Return the layout of all headers before a payload, as a big-endian number.

    Members: ``ethernet``, ``ipv4`` and ``udp`` (UDP only), ``link``, ``zeros`` (UDP only).
    """
    members: dict[str, Any] = {"link": header_layout(form.fields)}
    if encap is Encap.UDP:
        padding = 8 * (form.header_bytes(encap) - form.header_at(encap) - byte_length(form.fields))
        members = {"zeros": padding, **members, "udp": header_layout(UDP), "ipv4": header_layout(IPV4)}
    return data.StructLayout(members | {"ethernet": header_layout(ETHERNET)})


def is_other_traffic(header: Any, encap: Encap) -> Value:
    """Return whether the headers before the link's own header are not those of a link's frame."""
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
    """Return whether the source is the ``previous`` or the ``next`` end of a job."""
    if encap is Encap.L2:
        return header.ethernet.source == job[f"{end}_mac"]
    return header.ipv4.source == job[f"{end}_ip"]


def header_sums(m: Module, job: Any) -> dict[str, Value]:
    """Return sums of the IPv4 headers to the ``previous`` and ``next`` ends, without the payload's length.

    A job is constant, so the sums may take several cycles.
    """
    # Constant parts of all headers, as one word; a frame changes only the length.
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
    """Return assignments that fill the headers before the link's own header.

    An ``answer`` goes to the previous end, any other frame to the next one. IPv4's length includes
    ``payload_bytes``; ``header_sum``, 17 bits, is ``payload_bytes`` plus the sum of :func:`header_sums`.
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
