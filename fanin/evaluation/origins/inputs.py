"""Inputs, quoted or fitted, of the models of papers and of the measurements that are compared with papers."""

from __future__ import annotations

from fanin.evaluation.origins.kinds import Input, OriginKind


def _fitted(name: str) -> Input:
    return Input(name, OriginKind.FITTED)


# AI Smart NIC's iteration: fanin.evaluation.models.smart_nic_paper.
FLOPS_448 = _fitted("a worker's FLOPS, B = 448")
FLOPS_1792 = _fitted("a worker's FLOPS, B = 1792")
NIC_ADDS = _fitted("the NIC's additions")
MPI_LATENCY = _fitted("α of MPI's ring")
MPI_ADD = _fitted("γ of MPI's ring, two threads")
MPI_LONE_ADD = _fitted("γ of MPI's ring, one thread")
NIC_LINK = Input("the smart NIC's link of 40 Gb/s")
NIC_PCIE = Input("PCIe Gen3 x8 with 81 % payload")
MPI_BYTE = Input("the conventional NIC's link of 100 Gb/s")
SLOWER = Input("backward pass 11 % longer beside two threads")
WIDTHS = Input("20 layers of 2048²")
BFP16 = Input("136 bits for 16 values")

# INCEPTIONN's exchange: fanin.evaluation.models.exchange_cost.
BYTE = _fitted("seconds of a byte")
ADDITION = _fitted("seconds of an addition")
RING_BYTE = _fitted("seconds of a byte of the ring")
FIXED_SHARE = _fitted("share that no compression shortens")
SIZES = Input("table II's sizes")
LOCAL = Input("table II's computing")
COMMUNICATION = Input("table II's communication")
SUMS = Input("table II's sums")
TOTAL = Input("table II's training time")
RING_SAVES = Input("figure 12's communication that the ring saves")
SHARES = Input("table III's shares of forms")

# INCEPTIONN over RTL NICs: fanin.evaluation.bench.inceptionn.
LINKS = Input("links of 10 Gb/s")
HOST_TIME = Input("seconds that a host takes for a packet")

# P4SGD's machines: fanin.evaluation.models.baselines.
CPU_TIME = _fitted("bytes a second, and what a mini-batch takes beside reading")
GPU_TIME = _fitted("what a mini-batch takes beside reading")
HOST_ALLREDUCE = _fitted("an AllReduce of 8 workers, 12 µs")
MINI_BATCHES = _fitted("mini-batches of 64 samples")
PEAKS = Input("memory bandwidth of the data sheets")
WATTS = Input("table IV's watts")
T_L = Input("T_l of 1.2 µs")
SWITCH = Input("switch of 400 ns")
CABLES = Input("links of 100 ns each way and 100 Gb/s")
HBM = Input("latencies and refreshes of a U280's HBM2")
PORTS = Input("ports and clocks of the engines and the card's memory")

# RDMA-wild's cluster: fanin.evaluation.models.rdma_wild.
SAMPLE = _fitted("seconds of a sample on one node")
UPDATE = _fitted("the server's update, one rate for each model")
ONE_SERVER = _fitted("update and push of a byte, one number")
PS_BYTES = Input("bytes of a model")
PS_LINK = Input("link of 100 Gb/s")
PS_LATENCY = Input("a write's way of 1 µs")
JITTER = Input("assumed jitter of computing")

# NADA's clusters: planner/parts.toml and the models of planner/model/shipped.
CLOCK = Input("clock of 100 MHz")
DEVICE = Input("table IV's limits of a device")
TARGET = Input("table I's target throughput")
NETWORK = Input("layers of the network")
