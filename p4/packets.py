"""Headers of the aggregation program's packets, and its parser."""

from __future__ import annotations

from fanin.p4.aggregation import ProgramConfig
from fanin.p4.description import Assign, Header, State
from fanin.wire.aggregation import AGGREGATION, VALUE_BITS, Encap
from fanin.wire.ethernet import ETHERNET, IPV4, UDP
from fanin.wire.fields import Field


def headers(config: ProgramConfig) -> tuple[Header, ...]:
    """Return the headers in their order on the wire."""
    values = tuple(Field(f"v{n}", VALUE_BITS, f"value {n}") for n in range(config.values))
    network = (
        Header("ipv4", IPV4, "without options; with them a packet is other traffic"),
        Header("udp", UDP, "the aggregation port is the destination's"),
    )
    return (
        Header("ethernet", ETHERNET, ""),
        *(network if config.encap is Encap.UDP else ()),
        Header("aggregation", AGGREGATION, "docs/reference/aggregation-packet.md"),
        Header("values", values, "partial or full activations; valid in a well-formed packet alone"),
    )


def parser(config: ProgramConfig) -> tuple[State, ...]:
    """Return the ingress parser's states after the target's own first ones; UDP adds states in the middle."""
    udp = (
        State(
            "parse_ipv4",
            "ipv4",
            ("version", "ihl", "flags", "fragment", "protocol"),
            (("(4, 5, 0 &&& 1, 0, IP_PROTOCOL_UDP)", "parse_udp"),),
            comment="Options and fragments (more, or an offset) are other traffic.",
        ),
        State("parse_udp", "udp", ("destination_port",), (("AGGREGATION_PORT", "parse_aggregation"),)),
    )
    kinds = sorted((*config.kinds, *config.answers))
    kind_names = " or ".join(kind.name for kind in kinds)
    return (
        State(
            "parse_ethernet",
            "ethernet",
            ("ethertype",),
            (
                ("ETHERTYPE_AGGREGATION", "parse_aggregation"),
                *((("ETHERTYPE_IPV4", "parse_ipv4"),) if config.encap is Encap.UDP else ()),
            ),
        ),
        *(udp if config.encap is Encap.UDP else ()),
        State(
            "parse_aggregation",
            "aggregation",
            ("version", "kind"),
            tuple((f"(VERSION, {kind.name})", "check_round") for kind in kinds),
            assignments=(Assign("meta.aggregation", "1"),),
            comment=f"The program reads only values of packets of this version and of kind {kind_names}.",
        ),
        State(
            "check_round",
            None,
            ("round",),
            (("0", "accept"),),
            default="parse_values",
            comment="No round is 0.",
        ),
        State("parse_values", "values"),
    )
