"""The registers of a parameter server's node, declared once: RTL, host driver and documentation follow."""

from __future__ import annotations

from fanin.hdl.bus.common_registers import (
    control_register,
    counter_registers,
    identity_registers,
    node_map,
    shape_register,
    status_register,
)
from fanin.hdl.bus.register_map import Access, Field, Register, RegisterMap
from fanin.hdl.param_server.server import ServerEvents
from fanin.hdl.param_server.server_control import Refusal
from fanin.hdl.param_server.shapes import FLOAT_BITS, VERSION_BITS, WORDS_BITS
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, RKEY_BITS, index_bits
from fanin.hdl.rdma.registers import COUNTERS as NIC_COUNTERS
from fanin.hdl.rdma.registers import (
    INDEX_BITS,
    NIC_COMMANDS,
    endpoint_registers,
    flags,
    pair_registers,
    region_registers,
)
from fanin.param_server.facts import MAX_ROWS, MAX_SLOTS
from fanin.rdma.facts import RdmaConfig

IDENTITY = 0x464E5053  # "SPNF" in memory order: fanin parameter server
VERSION = 5

SERVER_COUNTERS = {
    "updates": "gradients that were taken",
    "made": "words of rows that were made",
    "pushes": "rows that were posted",
    "completed": "rows that their workers have",
    "failed": "rows that they do not have, as their queue pairs have ended",
    "let_go": "rows whose rest went by way of memory alone",
    "memory_errors": "responses of memory to the server that were errors",
}
assert list(SERVER_COUNTERS) == list(ServerEvents.as_shape().members)
_REFUSALS = "why the last `set_worker`, `start`, `exclude` or `readmit` was refused: " + ", ".join(
    f"{cause.value} {cause.name}" for cause in Refusal
)
#: What the node counts: the server's events, then the NIC's.
COUNTERS = SERVER_COUNTERS | {f"nic_{name}": doc for name, doc in NIC_COUNTERS.items()}


def param_server_constants(config: RdmaConfig) -> dict[str, int]:
    """What a node of that configuration says of itself, by field."""
    sizes = {name: getattr(config, name) for name in ("queue_pairs", "regions", "width")}
    return {"id": IDENTITY, "version": VERSION} | sizes


def _control(config: RdmaConfig) -> tuple[Register, ...]:
    return (
        *identity_registers(IDENTITY, VERSION),
        shape_register(
            Field("queue_pairs", 8, "workers at most"),
            Field("regions", 8, "regions"),
            Field("width", 10, "bits of a word"),
        ),
        control_register(
            *NIC_COMMANDS,
            Field("set_worker", 1, "the worker at `worker` gets these values; before every `start`"),
            Field("start", 1, "w is in row 0, and its version is 0; refused beside `set_worker`"),
            Field("exclude", 1, "the worker at `worker` is left out of the job, as if a push to it had failed"),
            Field("readmit", 1, "the worker at `worker`, which is `drained`, is taken back into the job"),
            note="`set_worker` and `start` are refused with `run` 1, while `busy`, and for wrong sizes and "
            "places, `exclude` and `readmit` for workers that cannot be left out or taken back: see `refused`",
        ),
        Register("run", Access.RW, "1: gradients are taken, after a `start`", bits=1),
        status_register(
            Field("connecting", 1, "the last `connect` has not been carried out yet"),
            Field("setting", 1, "the last `set_worker` or `readmit` has not been carried out yet"),
            Field("busy", 1, "an update or a push is not complete, or a read under way"),
            Field("exhausted", 1, "there is no version of w left"),
            Field("refused", max(Refusal).bit_length(), _REFUSALS),
        ),
        flags("gone", "workers that a push to has failed, or that were excluded: they are left out", config),
        flags("drained", "workers that are gone, and may be taken back: nothing of theirs is left", config),
    )


def _server() -> tuple[Register, ...]:
    return (
        Register(
            "sizes",
            Access.RW,
            "of the job",
            (
                Field("workers", INDEX_BITS + 1, "workers"),
                Field("slots", MAX_SLOTS.bit_length(), "gradients of each on the way"),
                Field("rows", MAX_ROWS.bit_length(), "model rows"),
                Field("barrier", 1, "1: w is pushed to all workers after a gradient of each"),
                Field("broadcast", 1, "1: w is pushed to all workers; not with `barrier`"),
                Field("scan", 1, "1: w is pushed after a scan, not after every gradient; not with `barrier`"),
            ),
        ),
        Register("step", Access.RW, "α/N, the bits of a float32", bits=FLOAT_BITS),
        Register("words", Access.RW, "words of w", bits=WORDS_BITS),
        Register("gradient_bytes", Access.RW, "bytes of w", bits=LENGTH_BITS),
        Register("row_bytes", Access.RW, "bytes of a model row", bits=LENGTH_BITS),
        Register("slot_bytes", Access.RW, "bytes of a gradient with its trailer", bits=LENGTH_BITS),
        Register("rows_base", Access.RW, "first byte of row 0", bits=64),
        Register("worker", Access.RW, "a worker, for `set_worker`: its place, and that of its queue pair",
                 bits=INDEX_BITS),
        Register("worker_table", Access.RW, "first byte of its gradients here", bits=64),
        Register("worker_buffers", Access.RW, "first byte of its model buffers there", bits=REMOTE_BITS),
        Register("worker_key", Access.RW, "key of the region there", bits=RKEY_BITS),
        Register("w_version", Access.RO, "updates begun since `start`", bits=VERSION_BITS),
        Register("stalest", Access.RO, "largest staleness of a gradient", bits=VERSION_BITS),
        Register("staleness", Access.RO, "sum of all, the lower word first", bits=32, count=2),
    )  # fmt: skip


def param_server_registers(config: RdmaConfig) -> RegisterMap:
    """The registers of a node of that configuration."""
    assert index_bits(config) <= INDEX_BITS
    return node_map(
        _control(config), endpoint_registers(config), pair_registers(config), region_registers(config),
        _server(), counter_registers(COUNTERS, bits=64),
    )  # fmt: skip
