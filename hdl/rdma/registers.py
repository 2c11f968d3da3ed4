"""Registers of a node of one-sided writes; source of the RTL, host driver and documentation."""

from __future__ import annotations

from fanin.hdl.bus.common_registers import (
    control_register,
    counter_registers,
    identity_registers,
    node_map,
    shape_register,
    status_register,
)
from fanin.hdl.bus.register_map import WORD_BITS, Access, Field, Register, RegisterMap
from fanin.hdl.net.vlan import TCI_BITS
from fanin.hdl.rdma.queue_pair import (
    IMMEDIATE_BITS,
    LENGTH_BITS,
    MTU_BITS,
    REMOTE_BITS,
    RKEY_BITS,
    TAG_BITS,
    index_bits,
)
from fanin.hdl.rdma.requester import RequesterEvents
from fanin.hdl.rdma.responder import ResponderEvents
from fanin.rdma.facts import FIRST_QUEUE_PAIR, MAX_RETRIES, MAX_WINDOW_BITS, Ending, RdmaConfig, Refusal
from fanin.wire.ethernet import IPV4
from fanin.wire.fields import field_bits
from fanin.wire.rdma import MAX_MESSAGE_BYTES, PATH_MTUS, PSN_BITS

IDENTITY = 0x464E5244  # "DRNF" in memory order: fanin RDMA
VERSION = 3
TIMEOUT = 50_000  # cycles
INDEX_BITS = 6  # bits of an index in the registers, for all configurations

#: Counters of every NIC; the first ones are the events of requester and responder.
COUNTERS = {
    "sent": "packets sent, without answers",
    "went_back": "times a queue pair sent again from its oldest packet",
    "timed_out": "times a queue pair did so because no answer arrived",
    "failed": "queue pairs that ended with a failed write",
    "not_ready": "answers that the receiver has no buffer for a message yet (RNR NAK)",
    "taken": "packets received and written",
    "repeated": "packets received again",
    "early": "packets received while one before them was missing",
    "refused": "packets that ended their queue pair",
    "dropped_foreign": "frames dropped: not RoCEv2, or not for this node's addresses",
    "dropped_damaged": "frames dropped: a length, the IPv4 checksum or the ICRC is wrong",
    "dropped_congestion": "congestion notices (CNP) dropped",
    "dropped_opcode": "packets dropped: an opcode of another service, reserved, or an answer to no request",
    "dropped_unconnected": "packets dropped: no connected queue pair has that number, partition and version",
    "lost": "frames dropped for lack of room",
    "memory_errors": "error responses of memory",
}
_EVENTS = [*RequesterEvents.as_shape().members, *ResponderEvents.as_shape().members]
assert list(COUNTERS)[: len(_EVENTS)] == _EVENTS
#: Counters of the host's writes.
POST_COUNTERS = {
    "accepted": "writes posted and accepted; each completes once",
    "refused_posts": "writes posted and refused",
}
REFUSAL_BITS = max(Refusal).bit_length()
REFUSALS = ", ".join(f"{refusal.value} {refusal.name}" for refusal in Refusal)

#: Commands of every node with a NIC.
NIC_COMMANDS = (
    Field("connect", 1, "connect the queue pair at `pair` anew with its registers, or disconnect it"),
    Field("set_region", 1, "set the region at `region` to its registers"),
)


def flags(name: str, doc: str, config: RdmaConfig) -> Register:
    """Return a register with one bit for each queue pair, in as many words as needed."""
    count = -(-config.queue_pairs // WORD_BITS)
    return Register(name, Access.RO, doc, bits=min(WORD_BITS, config.queue_pairs), count=count)


def rdma_constants(config: RdmaConfig) -> dict[str, int]:
    """Return the constant register fields of a node of that configuration."""
    sizes = {name: int(getattr(config, name)) for name in ("queue_pairs", "regions", "descriptors", "vlan")}
    return {"id": IDENTITY, "version": VERSION} | sizes


def _control() -> tuple[Register, ...]:
    return (
        *identity_registers(IDENTITY, VERSION),
        shape_register(
            Field("queue_pairs", 8, f"number of queue pairs; their numbers begin at {FIRST_QUEUE_PAIR:#x}"),
            Field("regions", 8, "number of regions"),
            Field("descriptors", 10, "descriptors of a queue pair that may be unfinished"),
            Field("vlan", 1, "1: the node inserts and removes 802.1Q tags"),
        ),
        control_register(
            *NIC_COMMANDS,
            Field("post", 1, "post the write at `write`"),
            Field("take_completion", 1, "show the next completion at `completion`"),
            Field("take_arrival", 1, "show the next message at `arrival`"),
        ),
        status_register(
            Field("connecting", 1, "the last `connect` has not taken effect yet"),
            Field("posting", 1, "the last `post` has been neither accepted nor refused yet"),
            Field("full", 1, "a `post` would be refused: take completions, or wait"),
        ),
        Register("post_refusal", Access.RO, f"why the last `post` was refused: {REFUSALS}", bits=REFUSAL_BITS),
    )


def endpoint_registers(config: RdmaConfig) -> tuple[Register, ...]:
    """Return the registers of the NIC's addresses and of the states of its queue pairs."""
    return (
        Register(
            "refusals",
            Access.RO,
            f"why the last command was refused: {REFUSALS}",
            (
                Field("connect_refusal", REFUSAL_BITS, "the last `connect`"),
                Field("region_refusal", REFUSAL_BITS, "the last `set_region`"),
            ),
        ),
        Register(
            "ended_psn",
            Access.RO,
            "oldest unacknowledged number of the old connection of the queue pair of the last `connect`",
            bits=PSN_BITS,
        ),
        flags("sending", "queue pairs that are connected and have not failed, as senders", config),
        flags("receiving", "queue pairs that are connected and have not failed, as receivers", config),
        Register("own_mac", Access.RW, "this node's MAC address", bits=48),
        Register("own_ip", Access.RW, "this node's IPv4 address"),
        Register("timeout", Access.RW, "cycles without an answer before packets are sent again", reset=TIMEOUT),
    )


def _mark_register(config: RdmaConfig) -> Register:
    """Return the register that marks a queue pair's frames; tag fields exist only with ``vlan``."""
    fields = [Field("traffic_class", field_bits(IPV4, "tos"), "IPv4's ToS byte: DSCP and ECN")]
    if config.vlan:
        fields.append(Field("tag_present", 1, "1: frames have an 802.1Q tag"))
        fields.append(Field("tag_tci", TCI_BITS, "tag: VLAN (12 bits), 0 (1 bit), priority (3 bits)"))
    return Register("marks", Access.RW, "traffic class and tag of the queue pair's frames", tuple(fields))


def pair_registers(config: RdmaConfig) -> tuple[Register, ...]:
    """Return the registers of a queue pair, for the command ``connect``."""
    mtus = ", ".join(f"{code} {mtu}" for code, mtu in enumerate(PATH_MTUS))
    return (
        Register(
            "pair",
            Access.RW,
            "a queue pair, for `connect`",
            (
                Field("pair_index", INDEX_BITS, "index of the queue pair"),
                Field("pair_enable", 1, "1: connect, 0: disconnect"),
                Field("mtu", MTU_BITS, f"path MTU: {mtus}"),
                Field("window", MAX_WINDOW_BITS.bit_length(), "log2 of the packets in flight: 0…10"),
                Field("retries", MAX_RETRIES.bit_length(), "retransmissions in a row before the pair fails"),
            ),
        ),
        Register("peer_number", Access.RW, "number of the queue pair at the other end", bits=PSN_BITS),
        Register("peer_mac", Access.RW, "MAC address of the next hop to the other end", bits=48),
        Register("peer_ip", Access.RW, "IPv4 address of the other end"),
        Register("source_port", Access.RW, "UDP port to send from", bits=16),
        _mark_register(config),
        Register("send_psn", Access.RW, "number of the first packet to send", bits=PSN_BITS),
        Register("receive_psn", Access.RW, "number of the first packet to expect", bits=PSN_BITS),
    )


def region_registers(config: RdmaConfig) -> tuple[Register, ...]:
    """Return the registers of a region, for the command ``set_region``."""
    return (
        Register(
            "region",
            Access.RW,
            "a region, for `set_region`",
            (Field("region_index", INDEX_BITS, "index of the region"), Field("region_enable", 1, "1: enabled")),
        ),
        Register("region_key", Access.RW, "key of the region", bits=RKEY_BITS),
        Register("region_base", Access.RW, "address of the first byte", bits=64),
        Register("region_limit", Access.RW, "address of the first byte after the region", bits=64),
        Register(
            "region_pairs", Access.RW, "one bit for each queue pair that may write it", bits=config.queue_pairs
        ),
    )


def _write() -> tuple[Register, ...]:
    endings = ", ".join(f"{ending.value} {ending.name}" for ending in Ending)
    return (
        Register(
            "write",
            Access.RW,
            "a write, for `post`",
            (
                Field("write_index", INDEX_BITS, "index of the queue pair"),
                Field("with_immediate", 1, "1: with immediate data"),
                Field("tag", TAG_BITS, "tag that the completion returns"),
            ),
        ),
        Register("local_address", Access.RW, "address of the first byte here", bits=64),
        Register("remote_address", Access.RW, "address of the first byte there", bits=REMOTE_BITS),
        Register("key", Access.RW, "key of the region there", bits=RKEY_BITS),
        Register("length", Access.RW, f"bytes of the write, at most {MAX_MESSAGE_BYTES}", bits=LENGTH_BITS),
        Register("immediate", Access.RW, "immediate data", bits=IMMEDIATE_BITS),
        Register(
            "completion",
            Access.RO,
            "the oldest completion, until `take_completion`",
            (
                Field("completed_tag", TAG_BITS, "tag of the write"),
                Field("completed_index", 8, "index of its queue pair"),
                Field("ending", 7, endings),
                Field("completed", 1, "1: a completion waits"),
            ),
        ),
        Register(
            "arrival",
            Access.RO,
            "the oldest received message with immediate data, until `take_arrival`",
            (Field("arrived_index", 8, "index of its queue pair"), Field("arrived", 1, "1: a message waits")),
        ),
        Register("arrived_immediate", Access.RO, "immediate data of that message"),
        Register("arrived_length", Access.RO, "bytes of that message"),
    )


def rdma_registers(config: RdmaConfig) -> RegisterMap:
    """Return the register map of a node of that configuration."""
    assert index_bits(config) <= INDEX_BITS
    return node_map(
        _control(), endpoint_registers(config), pair_registers(config), region_registers(config), _write(),
        counter_registers(POST_COUNTERS | COUNTERS, bits=2 * WORD_BITS),
    )  # fmt: skip
