"""Registers of the parameter server's node; source of the RTL, host driver and documentation."""

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
    "updates": "gradients taken",
    "made": "words of rows made",
    "pushes": "rows posted to workers",
    "completed": "rows delivered to their workers",
    "failed": "rows not delivered because the queue pair has ended",
    "let_go": "rows whose rest was read from memory",
    "memory_errors": "error responses of memory to the server",
}
assert list(SERVER_COUNTERS) == list(ServerEvents.as_shape().members)
_REFUSALS = "why the last `set_worker`, `start`, `exclude` or `readmit` was refused: " + ", ".join(
    f"{cause.value} {cause.name}" for cause in Refusal
)
#: Counters of the node: the server's events, then the NIC's.
COUNTERS = SERVER_COUNTERS | {f"nic_{name}": doc for name, doc in NIC_COUNTERS.items()}


def param_server_constants(config: RdmaConfig) -> dict[str, int]:
    """Return the constant register fields of a node of that configuration."""
    sizes = {name: getattr(config, name) for name in ("queue_pairs", "regions", "width")}
    return {"id": IDENTITY, "version": VERSION} | sizes


def _control(config: RdmaConfig) -> tuple[Register, ...]:
    return (
        *identity_registers(IDENTITY, VERSION),
        shape_register(
            Field("queue_pairs", 8, "largest number of workers"),
            Field("regions", 8, "regions"),
            Field("width", 10, "bits of a word"),
        ),
        control_register(
            *NIC_COMMANDS,
            Field("set_worker", 1, "set the worker at `worker` to the values below; before every `start`"),
            Field("start", 1, "start with version 0 of w in row 0; refused together with `set_worker`"),
            Field("exclude", 1, "exclude the worker at `worker` from the job, as if a push to it had failed"),
            Field("readmit", 1, "readmit the worker at `worker`, which is `drained`, to the job"),
            note="`set_worker` and `start` are refused with `run` 1, while `busy`, and for wrong sizes and "
            "places, `exclude` and `readmit` for workers that cannot be excluded or readmitted: see `refused`",
        ),
        Register("run", Access.RW, "1: take gradients, after a `start`", bits=1),
        status_register(
            Field("connecting", 1, "the last `connect` has not taken effect yet"),
            Field("setting", 1, "the last `set_worker` or `readmit` has not taken effect yet"),
            Field("busy", 1, "an update, a push or a read is not complete"),
            Field("exhausted", 1, "w has reached its last version"),
            Field("refused", max(Refusal).bit_length(), _REFUSALS),
        ),
        flags("gone", "workers excluded by `exclude` or by a failed push", config),
        flags("drained", "workers that are excluded and may be readmitted", config),
    )


def _server() -> tuple[Register, ...]:
    return (
        Register(
            "sizes",
            Access.RW,
            "sizes and mode of the job",
            (
                Field("workers", INDEX_BITS + 1, "number of workers"),
                Field("slots", MAX_SLOTS.bit_length(), "gradients of each worker in flight"),
                Field("rows", MAX_ROWS.bit_length(), "number of model rows"),
                Field("barrier", 1, "1: push w to all workers after a gradient of each"),
                Field("broadcast", 1, "1: push w to all workers; not with `barrier`"),
                Field("scan", 1, "1: push w after a scan instead of after every gradient; not with `barrier`"),
            ),
        ),
        Register("step", Access.RW, "step α/N, as the bits of a float32", bits=FLOAT_BITS),
        Register("words", Access.RW, "words of w", bits=WORDS_BITS),
        Register("gradient_bytes", Access.RW, "bytes of w", bits=LENGTH_BITS),
        Register("row_bytes", Access.RW, "bytes of a model row", bits=LENGTH_BITS),
        Register("slot_bytes", Access.RW, "bytes of a gradient with its trailer", bits=LENGTH_BITS),
        Register("rows_base", Access.RW, "address of row 0", bits=64),
        Register("worker", Access.RW, "index of a worker and of its queue pair, for the commands above",
                 bits=INDEX_BITS),
        Register("worker_table", Access.RW, "address of the worker's gradients here", bits=64),
        Register("worker_buffers", Access.RW, "address of the worker's model buffers there", bits=REMOTE_BITS),
        Register("worker_key", Access.RW, "key of the worker's region", bits=RKEY_BITS),
        Register("w_version", Access.RO, "updates begun since `start`", bits=VERSION_BITS),
        Register("stalest", Access.RO, "largest staleness of a gradient", bits=VERSION_BITS),
        Register("staleness", Access.RO, "sum of all stalenesses, the lower word first", bits=32, count=2),
    )  # fmt: skip


def param_server_registers(config: RdmaConfig) -> RegisterMap:
    """Return the register map of a node of that configuration."""
    assert index_bits(config) <= INDEX_BITS
    return node_map(
        _control(config), endpoint_registers(config), pair_registers(config), region_registers(config),
        _server(), counter_registers(COUNTERS, bits=64),
    )  # fmt: skip
