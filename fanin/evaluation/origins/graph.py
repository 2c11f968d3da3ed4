"""Origins of figures: the graph from quoted and fitted inputs to every figure with an identifier.

An identifier is a few words with dots between, such as ``ring.figure_4b.b_448.smart_nic.nodes_6``, made by
:func:`identifier`. Each paper has a table of (pattern of identifiers, origin). The first pattern that a figure
matches determines its origin. A simulation's figure is *derived* if its inputs make up nearly all of it: 153 of
the 159 cycles of an AllReduce are links and switch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache

from fanin.evaluation.origins import inputs as i
from fanin.evaluation.origins.kinds import Input, Origin, OriginKind, derived

#: names of characters in identifiers
_LETTERS = str.maketrans(
    {"²": "_squared", "φ": "phi", "ψ": "psi", "γ": "gamma", "µ": "u", "+": "_with_", "÷": "over"}
)


def identifier(*parts: object) -> str:
    """Return a figure's identifier: lower-case ``parts`` with dots between, other characters as underscores."""
    words = (re.sub(r"[^\w.]+", "_", str(part).translate(_LETTERS).lower()).strip("_") for part in parts)
    return ".".join(words)


def _fitted(*inputs: Input) -> Origin:
    return Origin(OriginKind.FITTED, inputs)


def _rtl(*inputs: Input) -> Origin:
    return Origin(OriginKind.RTL, inputs)


_GPU = (i.CPU_TIME, i.GPU_TIME, i.HOST_ALLREDUCE, i.MINI_BATCHES, i.PEAKS)
P4SGD = (
    ("allreduce.loss_0.*.node_ns", _rtl()),
    ("allreduce.loss_0.*", derived(i.SWITCH, i.CABLES)),
    ("allreduce.*", _rtl(i.SWITCH, i.CABLES)),
    ("glm.figure_9.*", _rtl(i.T_L)),
    ("glm.table_1.*", _rtl(i.T_L)),
    ("glm.figure_13.*.p4sgd_*", Origin(OriginKind.TIMED, (i.T_L,))),
    ("glm.figure_13.*", derived(i.CPU_TIME, i.GPU_TIME, i.HOST_ALLREDUCE, i.MINI_BATCHES, i.PEAKS, i.T_L)),
    ("glm.figure_14.*", Origin(OriginKind.GOLDEN)),
    ("glm.figure_14_rtl.*", _rtl()),
    ("glm.figure_15.*", Origin(OriginKind.GOLDEN)),
    ("glm.table_4.gpusync.avazu.joules", derived(*_GPU, i.T_L, i.WATTS)),
    ("glm.table_4.gpusync.avazu.seconds", derived(*_GPU, i.T_L)),
    ("glm.memory.*.of_the_card", derived(i.PORTS, i.HBM)),
    ("glm.memory.*", _rtl(i.HBM)),
    ("area.*", Origin(OriginKind.SYNTHESIS)),
    ("switch.tofino.*", Origin(OriginKind.PLAN)),
)

_TRAINING = (i.LOCAL, i.COMMUNICATION, i.SUMS, i.TOTAL)
_COMPRESSED = (i.RING_SAVES, i.FIXED_SHARE, i.SHARES)
INCEPTIONN = (
    ("inceptionn.model.alexnet.wa.communicate_s", _fitted(i.BYTE, i.SIZES)),
    ("inceptionn.model.alexnet.wa.sum_s", _fitted(i.ADDITION, i.SIZES)),
    ("inceptionn.model.alexnet.inc.communication_saved", _fitted(i.RING_BYTE, i.SIZES, i.COMMUNICATION)),
    ("inceptionn.model.inc_with_c.communication_saved.most", _fitted(*_COMPRESSED)),
    ("inceptionn.model.*.wa.communicate_s", derived(i.BYTE, i.SIZES)),
    ("inceptionn.model.*.wa.sum_s", derived(i.ADDITION, i.SIZES)),
    ("inceptionn.model.*.inc.communication_saved", derived(i.RING_BYTE, i.SIZES, i.COMMUNICATION)),
    ("inceptionn.model.*.inc.time_saved", derived(i.RING_SAVES, *_TRAINING)),
    ("inceptionn.model.inc_with_c.communication_saved.least", derived(*_COMPRESSED)),
    ("inceptionn.model.inc_with_c.faster.*", derived(*_COMPRESSED, *_TRAINING)),
    ("inceptionn.model.alexnet.wa_with_c.communication_saved", derived(i.FIXED_SHARE, i.SHARES)),
    ("inceptionn.figure_15.*", derived(i.BYTE, i.ADDITION, i.RING_BYTE, i.SIZES)),
    ("inceptionn.figure_3.alexnet.communication", _fitted(i.BYTE, i.ADDITION, i.SIZES, *_TRAINING)),
    ("inceptionn.figure_3.*", derived(i.BYTE, i.ADDITION, i.SIZES, *_TRAINING)),
    ("inceptionn.figure_5.*", Origin(OriginKind.GOLDEN)),
    ("inceptionn.figure_7.*", Origin(OriginKind.HOST, (i.SIZES, i.COMMUNICATION, i.TOTAL))),
    ("inceptionn.rtl.*.wa.communicate_s", derived(i.LINKS, i.HOST_TIME, i.SIZES)),
    ("inceptionn.rtl.*.inc.communication_saved", derived(i.LINKS, i.HOST_TIME)),
    ("inceptionn.rtl.*.faster.*", _rtl(i.LINKS, i.HOST_TIME, i.SHARES, i.SIZES, i.LOCAL, i.SUMS)),
    ("inceptionn.rtl.*", _rtl(i.LINKS, i.HOST_TIME, i.SHARES)),
    ("inceptionn.training.*", Origin(OriginKind.GOLDEN)),
    ("codec_verify.*", _rtl()),
)


_SMART = (i.NIC_ADDS, i.NIC_LINK, i.NIC_PCIE, i.WIDTHS)
_MPI = (i.MPI_LATENCY, i.MPI_ADD, i.MPI_BYTE, i.SLOWER, i.WIDTHS)
_NAIVE = (i.FLOPS_1792, i.MPI_LATENCY, i.MPI_LONE_ADD, i.MPI_BYTE, i.WIDTHS)
_BATCH_448 = (i.FLOPS_448, *_SMART, *_MPI, i.BFP16)
_BATCH_1792 = (i.FLOPS_1792, *_SMART, *_MPI, i.BFP16)
SMART_NIC = (
    ("ring.fact.b_448.*.fitted", _fitted(*_BATCH_448)),
    ("ring.fact.b_1792.nodes_6.naive.exposed.fitted", _fitted(*_NAIVE)),
    ("ring.fact.b_1792.*.fitted", _fitted(*_BATCH_1792)),
    ("ring.iteration.b_448.*.conventional_nic", derived(i.FLOPS_448, *_MPI)),
    ("ring.iteration.b_1792.*.conventional_nic", derived(i.FLOPS_1792, *_MPI)),
    ("ring.iteration.b_448.*.smart_nic", derived(i.FLOPS_448, *_SMART)),
    ("ring.iteration.b_1792.*.smart_nic", derived(i.FLOPS_1792, *_SMART)),
    ("ring.iteration.b_448.*.smart_nic_with_bfp", derived(i.FLOPS_448, *_SMART, i.BFP16)),
    ("ring.iteration.b_1792.*.smart_nic_with_bfp", derived(i.FLOPS_1792, *_SMART, i.BFP16)),
    ("ring.figure_2a.naive.*", derived(*_NAIVE)),
    ("ring.figure_2a.overlapped.*", derived(i.FLOPS_1792, *_MPI)),
    ("ring.figure_2a.smart_nic.*", derived(i.FLOPS_1792, *_SMART)),
    ("ring.figure_2b.*", derived(i.FLOPS_1792, *_MPI)),
    ("ring.figure_4a.*", derived(*_BATCH_448)),
    ("ring.figure_4b.b_448.*", derived(*_BATCH_448)),
    ("ring.figure_4b.b_1792.*", derived(*_BATCH_1792)),
    ("ring.bfp16.ratio", derived(i.BFP16)),
    ("ring_training.*", _rtl(i.FLOPS_448, i.FLOPS_1792, i.NIC_LINK, i.NIC_PCIE)),
)

_CLUSTER = (i.SAMPLE, i.UPDATE, i.PS_BYTES, i.PS_LINK, i.PS_LATENCY)
RDMA_WILD = (
    ("ps.table_1.per_model*.sync_s", _fitted(*_CLUSTER, i.JITTER)),
    ("ps.table_1.one_server*.wild_s", _fitted(i.ONE_SERVER, *_CLUSTER, i.JITTER)),
    ("ps.table_1.per_model_steady.*", derived(*_CLUSTER)),
    ("ps.table_1.per_model.*", derived(*_CLUSTER, i.JITTER)),
    ("ps.table_1.*", derived(i.SAMPLE, i.ONE_SERVER, i.PS_BYTES, i.PS_LINK, i.PS_LATENCY, i.JITTER)),
    ("ps.pushes.*.cluster.*", derived(*_CLUSTER, i.JITTER)),
    ("ps.pushes.*.design.*", Origin(OriginKind.TIMED, (i.SAMPLE, i.PS_BYTES, i.JITTER))),
    ("ps.figure_1.*", Origin(OriginKind.HOST, (*_CLUSTER, i.JITTER))),
    ("ps.sweep.*", derived(*_CLUSTER, i.JITTER)),
    ("ps_train.sync.*.simulated_seconds", derived(i.SAMPLE, i.JITTER)),
    ("ps_train.sync.simulated_seconds", derived(i.SAMPLE, i.JITTER)),
    ("ps_train.broadcast.*", _rtl(i.SAMPLE, i.JITTER)),
    ("ps_train.on_model.*", Origin(OriginKind.GOLDEN)),
)

_RATES = (i.CLOCK, i.DEVICE, i.NETWORK)
NADA = (
    ("cluster.example_cnn.*.dram_in_use.*", Origin(OriginKind.PLAN, _RATES)),
    ("cluster.*", derived(*_RATES)),
    ("plan.listing_1.*.throughput", derived(i.TARGET, i.CLOCK, i.NETWORK)),
    ("plan.listing_1.*.induced_delay", derived(i.NETWORK)),
    ("plan.listing_1.*", Origin(OriginKind.PLAN, (i.TARGET, i.CLOCK, i.NETWORK))),
    ("plan.layers.*", derived(i.NETWORK)),
    ("plan.*", derived(*_RATES)),
)

GRAPH: tuple[tuple[str, Origin], ...] = (*P4SGD, *INCEPTIONN, *SMART_NIC, *RDMA_WILD, *NADA)


@cache
def origin(figure: str) -> Origin:
    """Return the origin of a figure, or of a pattern's figures. Raises KeyError for an unknown figure."""
    for pattern, figure_origin in GRAPH:
        if fnmatchcase(figure, pattern):
            return figure_origin
    raise KeyError(figure)


def matching(pattern: str, figures: Iterable[str]) -> list[str]:
    """Return the identifiers that match a pattern with ``*``. Raises KeyError if none does."""
    if matches := [figure for figure in figures if fnmatchcase(figure, pattern)]:
        return matches
    raise KeyError(pattern)
