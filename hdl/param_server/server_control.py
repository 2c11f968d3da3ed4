"""Execution of the host's commands to a parameter server, or refusal with a cause."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from enum import IntEnum
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.param_server.row import tail_words
from fanin.hdl.param_server.shapes import FLOAT_BITS, VERSION_BITS, WORDS_BITS, settings_layout, worker_layout
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, RKEY_BITS, index_bits
from fanin.hdl.rdma.registers import INDEX_BITS
from fanin.hdl.rdma.shapes import lane_bits
from fanin.param_server.facts import MAX_ROWS, MAX_SLOTS, MAX_WORKERS
from fanin.rdma.facts import RdmaConfig

ADDRESS_BITS = 64  # width in registers, independent of the node's address width
_SETTLE = 4  # cycles from accepting a worker to making its entry; the settings are copied in that time
_PARTS = 3  # parts of a comparison of two sizes, for short paths
_SETTING = 3 * _SETTLE  # cycles until the entry is made and the server is idle again


class Refusal(IntEnum):
    """Cause of refusing the last ``set_worker``, ``start``, ``exclude`` or ``readmit``."""

    NONE = 0
    BUSY = 1  #: the server works, takes gradients or sets a worker; or one write held several commands
    SIZES = 2  #: a size is 0, too large for the node, or inconsistent with the others
    PLACE = 3  #: an address is not a multiple of a word, or beyond the node's address space
    WORKER = 4  #: the node (for ``exclude``: the job) has no worker of that index
    UNSET = 5  #: a worker of the job was not set since the last ``start``, or was set with other sizes
    NO_JOB = 6  #: no job is started
    PRESENT = 7  #: the worker is not excluded
    DRAINING = 8  #: a gradient, a round or a push of the worker is not complete
    UNCONNECTED = 9  #: the worker's queue pair is not connected, or has failed


class JobRequest(data.Struct):
    """Sizes and addresses of a job as a host writes them, not yet checked: see ``settings_layout``."""

    workers: INDEX_BITS + 1
    slots: MAX_SLOTS.bit_length()
    rows: MAX_ROWS.bit_length()
    barrier: 1
    broadcast: 1
    scan: 1
    words: WORDS_BITS
    gradient_bytes: LENGTH_BITS
    row_bytes: LENGTH_BITS
    slot_bytes: LENGTH_BITS
    base: ADDRESS_BITS
    step: FLOAT_BITS


class WorkerRequest(data.Struct):
    """A worker as a host writes it, not yet checked: see ``worker_layout``."""

    index: INDEX_BITS
    table: ADDRESS_BITS
    remote: REMOTE_BITS
    rkey: RKEY_BITS


class ServerControl(wiring.Component):
    """Controller that checks a host's commands and keeps a job's settings from its ``start`` on.

    A ``start`` needs all workers of the job, each set since the last ``start``. Gradients are taken only after
    an accepted ``start``. With ``run`` low a job pauses. Setting a worker during a pause ends the job, and so
    does a refused ``start``. ``exclude`` and ``readmit`` change the workers of a started job, at any ``run``.

    Members
    -------
    ``job`` : In, JobRequest
        Sizes and addresses. Copied continuously while the server is idle and ``run`` is low, until a ``start``
        is accepted; copied again from the next accepted ``set_worker`` on.
    ``request`` : In, WorkerRequest
        Worker of a command. ``set_worker`` uses all of it, ``readmit`` all except ``table``, ``exclude`` only
        the index.
    ``set_worker`` : In(1)
        Pulse, at least 5 cycles after the last change of ``job`` or ``request``.
    ``start`` : In(1)
        Pulse, at least 5 cycles after the last change of ``job``, ``run`` or ``busy``.
    ``exclude``, ``readmit`` : In(1)
        Pulses, at least 5 cycles after the last change of ``request``.
    ``run`` : In(1)
        Take gradients, after an accepted ``start``.
    ``busy`` : In(1)
        Output ``busy`` of the server.
    ``excluded``, ``drained`` : In, one bit for each worker
        Outputs of the server.
    ``connected`` : In, one bit for each worker
        The worker's queue pair can send.
    ``settings`` : Out, :func:`~fanin.hdl.param_server.shapes.settings_layout`
        Settings for the server.
    ``worker`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.worker_layout`
        Workers for the server, set or readmitted.
    ``excludes`` : Out, stream of a worker's index, always ready
        Input ``exclude`` of the server.
    ``begin`` : Out(1)
        Pulse: input ``start`` of the server.
    ``enable`` : Out(1)
        Input ``enable`` of the server.
    ``setting`` : Out(1)
        A worker is being set or readmitted.
    ``refused`` : Out, Refusal
        Result of the last ``set_worker``, ``start``, ``exclude`` or ``readmit``; NONE if it was accepted.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs, and widths.

    Latency
    -------
    ``begin`` follows ``start`` by 1 cycle. ``worker`` follows ``set_worker`` by 5 cycles and ``readmit`` by 1.
    ``excludes`` is in the cycle of ``exclude``.

    Source
    ------
    docs/systems/param-server-hardware.md, "The life of a node".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "job": In(JobRequest),
                "request": In(WorkerRequest),
                "set_worker": In(1),
                "start": In(1),
                "exclude": In(1),
                "readmit": In(1),
                "run": In(1),
                "busy": In(1),
                "excluded": In(config.queue_pairs),
                "drained": In(config.queue_pairs),
                "connected": In(config.queue_pairs),
                "settings": Out(settings_layout(config)),
                "worker": Out(stream.Signature(worker_layout(config))),
                "excludes": Out(stream.Signature(index_bits(config), always_ready=True)),
                "begin": Out(1),
                "enable": Out(1),
                "setting": Out(1),
                "refused": Out(range(max(Refusal) + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Copy settings until a start; check each command, and execute or refuse it.

        ``started``: a start was accepted and no later command has ended the job; the settings are frozen.
        ``readmits``: a worker is being readmitted, until the server no longer excludes it.
        An accepted ``set_worker`` shifts a 1 through ``acceptance``. ``_SETTLE`` cycles later, after the
        settings have been copied again, the worker is offered to the server. Until the 1 has left the register,
        other commands are refused as BUSY.
        """
        m = Module()
        count = self.config.queue_pairs
        started = Signal()
        set_workers = Signal(count)  # workers set since the last start
        acceptance = Signal(_SETTING)  # shift register: a 1 for each accepted worker
        at_work = Signal()
        readmits = Signal()
        setting = Signal()  # a ``set_worker`` or ``readmit`` is not complete
        is_setting = Signal.like(setting)  # a cycle later
        sizes_wrong, base_wrong, settings_changed = self._check_job(m)
        table_wrong = Signal()
        worker_missing = Signal()
        is_member = Cat(self.job.workers > n for n in range(count))
        m.d.sync += [
            worker_missing.eq((is_member & ~set_workers).any()),
            table_wrong.eq(self._is_misplaced(self.request.table)),
        ]
        m.d.sync += [at_work.eq(self.run | self.busy | setting), is_setting.eq(setting)]
        m.d.comb += [
            setting.eq(acceptance.any() | self.worker.valid | readmits),
            self.setting.eq(self.set_worker | self.readmit | setting),
            self.enable.eq(self.run & started),
        ]
        # The first cycles of ``acceptance`` are for copying settings that ``started`` had frozen.
        with m.If(~self.run & ~self.busy & ~self.worker.valid & ~started & ~acceptance[_SETTLE - 1 :].any()):
            m.d.sync += [self.settings[name].eq(self.job[name]) for name in self.settings.shape().members]
            with m.If(settings_changed):
                m.d.sync += set_workers.eq(0)
        m.d.sync += [self.begin.eq(0), acceptance.eq(acceptance << 1)]
        with m.If(acceptance[_SETTLE - 1]):
            m.d.sync += [self.worker.valid.eq(1), set_workers.bit_select(self.worker.p.index, 1).eq(1)]
        with m.Elif(self.worker.ready):
            m.d.sync += self.worker.valid.eq(0)
        cause = self._cause(sizes_wrong, base_wrong, table_wrong, worker_missing, at_work)
        with m.If(self.set_worker | self.start):
            m.d.sync += self.refused.eq(cause)
            with m.If((cause == Refusal.NONE) | self.start & (cause != Refusal.BUSY)):
                m.d.sync += started.eq(0)
        is_combined = self.set_worker | self.start | self.exclude & self.readmit  # several commands
        self._exclude(m, started, is_setting, is_combined)
        self._readmit(m, started, is_setting, readmits, is_combined)
        with m.If(self.set_worker & (cause == Refusal.NONE)):
            m.d.sync += acceptance.eq(1)
            m.d.sync += self._worker(readmits=0)
        with m.If(self.start & (cause == Refusal.NONE)):
            m.d.sync += [self.begin.eq(1), started.eq(1), set_workers.eq(0)]
        return m

    def _worker(self, *, readmits: int) -> list[Any]:
        """Return statements that copy the requested worker to ``worker``."""
        payload, request = self.worker.p, self.request
        members = WorkerRequest.as_shape().members
        return [payload.readmits.eq(readmits), *(payload[name].eq(request[name]) for name in members)]

    def _exclude(self, m: Module, started: Signal, is_setting: Signal, is_combined: Value) -> None:
        """Exclude a worker, or refuse the command."""
        refusal = Signal(self.refused.shape())
        cause = _last_cause(
            (self.request.index >= self.settings.workers, Refusal.WORKER),
            (~started, Refusal.NO_JOB),
            (is_setting, Refusal.BUSY),
        )
        m.d.sync += refusal.eq(cause)
        m.d.comb += [
            self.excludes.valid.eq(self.exclude & ~is_combined & (refusal == Refusal.NONE)),
            self.excludes.payload.eq(self.request.index),
        ]
        with m.If(self.exclude):
            m.d.sync += self.refused.eq(Mux(is_combined, Refusal.BUSY, refusal))

    def _readmit(
        self, m: Module, started: Signal, is_setting: Signal, readmits: Signal, is_combined: Value
    ) -> None:
        """Readmit a worker, or refuse the command."""
        # State of the command's worker.
        flags = [Signal(name=f"is_{name}") for name in ("excluded", "drained", "connected")]
        is_excluded, is_drained, is_connected = flags
        for flag, workers in zip(flags, (self.excluded, self.drained, self.connected), strict=True):
            m.d.sync += flag.eq(workers.bit_select(self.request.index, 1))
        refusal = Signal(self.refused.shape())
        cause = _last_cause(
            (~is_connected, Refusal.UNCONNECTED),
            (~is_drained, Refusal.DRAINING),
            (~is_excluded, Refusal.PRESENT),
            (self.request.index >= self.config.queue_pairs, Refusal.WORKER),
            (~started, Refusal.NO_JOB),
            (is_setting, Refusal.BUSY),
        )
        m.d.sync += refusal.eq(cause)
        refusal_now = Mux(is_combined, Refusal.BUSY, refusal)
        with m.If(readmits & ~self.worker.valid):
            m.d.sync += readmits.eq(self.excluded.bit_select(self.worker.p.index, 1))
        with m.If(self.readmit):
            m.d.sync += self.refused.eq(refusal_now)
            with m.If(refusal_now == Refusal.NONE):
                m.d.sync += [readmits.eq(1), self.worker.valid.eq(1), *self._worker(readmits=1)]

    def _cause(
        self, sizes_wrong: Value, base_wrong: Value, table_wrong: Value, worker_missing: Value, at_work: Value
    ) -> Any:
        """Return the cause of refusing a command of this cycle, or NONE."""
        causes = (
            (self.start & worker_missing, Refusal.UNSET),
            (self.start & base_wrong | self.set_worker & table_wrong, Refusal.PLACE),
            (self.set_worker & (self.request.index >= self.config.queue_pairs), Refusal.WORKER),
            (sizes_wrong, Refusal.SIZES),
            (at_work | self.start & self.set_worker | self.exclude | self.readmit, Refusal.BUSY),
        )
        return _last_cause(*causes)

    def _is_misplaced(self, address: Value) -> Value:
        """Return whether ``address`` is not a multiple of a word or is beyond the address space."""
        low, end = lane_bits(self.config.width), self.config.address_width
        return Cat(address[:low], address[end:]).any()

    def _check_job(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """Return three signals: sizes are wrong, row 0 is misplaced, settings differ from ``job``.

        The signals are valid 4 cycles after the last change of ``job``.
        """
        job, config = self.job, self.config
        low = lane_bits(config.width)
        extra_words = Signal(range(MAX_WORKERS))  # words of a row besides those of w
        row_words = Signal(WORDS_BITS + 1)
        slot_words = Signal(WORDS_BITS + 1)
        gradient_wrong, row_wrong, slot_wrong = (
            Signal(_PARTS, name=f"{name}_wrong") for name in ("gradient", "row", "slot")
        )
        counts_wrong = Signal()
        mode_wrong = Signal()
        sizes_wrong = Signal()
        base_wrong = Signal()
        settings_changed = Signal()
        m.d.sync += [
            # The row's head is one more word, counted here as the number of LGVnums that fill a word.
            extra_words.eq(tail_words(job.workers + config.width // VERSION_BITS, width=config.width)),
            row_words.eq(job.words + extra_words),
            slot_words.eq(job.words + 1),
            gradient_wrong.eq(_difference(job.gradient_bytes, job.words << low)),
            row_wrong.eq(_difference(job.row_bytes, row_words << low)),
            slot_wrong.eq(_difference(job.slot_bytes, slot_words << low)),
            counts_wrong.eq(
                ~(job.words.any() & job.workers.any() & job.slots.any() & job.rows.any())
                | (job.workers > config.queue_pairs)
                | (job.slots > MAX_SLOTS)
                | (job.rows > MAX_ROWS)
            ),
            mode_wrong.eq(job.barrier & (job.broadcast | job.scan | (job.slots != 1))),
            sizes_wrong.eq(
                gradient_wrong.any() | row_wrong.any() | slot_wrong.any() | counts_wrong | mode_wrong
            ),
            base_wrong.eq(self._is_misplaced(job.base)),
            settings_changed.eq(Cat(self.settings[n] != job[n] for n in self.settings.shape().members).any()),
        ]
        return sizes_wrong, base_wrong, settings_changed


def _last_cause(*causes: tuple[Any, Refusal]) -> Any:
    """Return the last cause whose condition holds, or NONE."""
    cause: Any = Refusal.NONE
    for condition, candidate in causes:
        cause = Mux(condition, candidate, cause)
    return cause


def _difference(a: Any, b: Any) -> Value:
    """Return one bit for each of ``_PARTS`` groups of bits: the two sizes differ in that group."""
    bits = max(len(a), len(b))
    step = -(-bits // _PARTS)
    bits_differ = Value.cast(a ^ b)
    return Cat(bits_differ[at : at + step].any() for at in range(0, bits, step))
