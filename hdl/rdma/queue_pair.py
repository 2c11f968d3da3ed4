"""Data layouts of queue pairs, of their writes and of their packets."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

import functools
from collections.abc import Callable

from amaranth import Mux, Value
from amaranth.lib import data

from fanin.hdl.rdma.shapes import SIZE_BITS, Peer, lane_bits, words_bits
from fanin.rdma.facts import MAX_RETRIES, MAX_WINDOW_BITS, Ending, RdmaConfig
from fanin.wire.fields import field_bits
from fanin.wire.rdma import AETH, BTH, IMMEDIATE, PATH_MTUS, PSN_BITS, RETH, Fault

TAG_BITS = 16  # the host's identifier of a write
RKEY_BITS = field_bits(RETH, "rkey")
LENGTH_BITS = field_bits(RETH, "length")
REMOTE_BITS = field_bits(RETH, "address")
IMMEDIATE_BITS = field_bits(IMMEDIATE, "immediate")
SYNDROME_BITS = field_bits(AETH, "syndrome")
MSN_BITS = field_bits(AETH, "msn")
FAULT_BITS = max(Fault).bit_length()
MTU_BITS = (len(PATH_MTUS) - 1).bit_length()
SMALLEST_MTU_BITS = min(PATH_MTUS).bit_length() - 1
assert tuple(min(PATH_MTUS) << n for n in range(len(PATH_MTUS))) == PATH_MTUS


class Settings(data.Struct):
    """Settings of one end of a queue pair, as its host configures it."""

    enable: 1
    peer: Peer
    mtu: MTU_BITS  # index in PATH_MTUS
    window: MAX_WINDOW_BITS.bit_length()  # log2 of the packets in flight
    retries: MAX_RETRIES.bit_length()
    send_psn: PSN_BITS
    receive_psn: PSN_BITS


def index_bits(config: RdmaConfig) -> int:
    """Return the bits of a queue pair's index in the tables."""
    return (config.queue_pairs - 1).bit_length()


def connect_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a command that connects a queue pair anew, or disconnects it."""
    return data.StructLayout({"index": index_bits(config), "settings": Settings})


def write_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a descriptor: ``length`` bytes from ``local`` here to ``remote`` at the peer."""
    return data.StructLayout(
        {
            "index": index_bits(config),
            "tag": TAG_BITS,
            "local": config.address_width,
            "remote": REMOTE_BITS,
            "rkey": RKEY_BITS,
            "length": LENGTH_BITS,
            "with_immediate": 1,
            "immediate": IMMEDIATE_BITS,
        }
    )


def completion_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a descriptor's completion."""
    return data.StructLayout({"index": index_bits(config), "tag": TAG_BITS, "ending": max(Ending).bit_length()})


def answer_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a received ACK or NAK."""
    return data.StructLayout({"index": index_bits(config), "psn": PSN_BITS, "syndrome": SYNDROME_BITS})


def arrival_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a received message with immediate data that is in memory."""
    return data.StructLayout({"index": index_bits(config), "immediate": IMMEDIATE_BITS, "length": LENGTH_BITS})


def packets_of(size: Value, mtu: Value) -> Value:
    """Return ``size`` bytes in packets, rounded down; ``mtu`` is an index in ``PATH_MTUS``."""
    return _by_mtu(mtu, lambda n: size[SMALLEST_MTU_BITS + n :])


def bytes_of(packets: Value, mtu: Value) -> Value:
    """Return the bytes of ``packets`` full packets; ``mtu`` is an index in ``PATH_MTUS``."""
    return _by_mtu(mtu, lambda n: packets << SMALLEST_MTU_BITS + n)


def _by_mtu(mtu: Value, value_of: Callable[[int], Value]) -> Value:
    """Return ``value_of(mtu)``, built as multiplexers over all values of ``mtu``."""
    return functools.reduce(
        lambda others, n: Mux(mtu == n, value_of(n), others), range(1, len(PATH_MTUS)), value_of(0)
    )


def received_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a received packet without its payload.

    ``fault``: reason to ignore the packet, or NONE; with a fault only ``words`` is valid.
    ``words``: payload words in the receive buffer; 0 for an opcode that must be refused.
    ``answer``: the packet is an acknowledgement.
    ``allowed``: a region allows the message.
    """
    return data.StructLayout(
        {
            "fault": FAULT_BITS,
            "words": words_bits(config.width),
            "index": index_bits(config),
            "opcode": field_bits(BTH, "opcode"),
            "answer": 1,
            "acknowledge": 1,
            "psn": PSN_BITS,
            "size": SIZE_BITS,
            "lane": lane_bits(config.width),
            "address": config.address_width,
            "length": LENGTH_BITS,
            "allowed": 1,
            "immediate": IMMEDIATE_BITS,
            "syndrome": SYNDROME_BITS,
        }
    )
