"""Write the memory contents and expected results of the testbenches: python vectors.py BENCH…

Expected results are those of fanin's golden models. A file has a word of memory a line, for ``$readmemh``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fanin import fixed
from fanin.cnn.driver import HostMemory
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.golden.image import state_image
from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.memory import MemoryMap, pack, state_stages
from fanin.cnn.training import Job
from fanin.codec.facts import TOS_COMPRESSIBLE, Inceptionn
from fanin.codec.golden import packet
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS as GLM
from fanin.glm.facts import TrainShape
from fanin.glm.golden.layout import pack_labels, pack_samples, split_model, split_ports
from fanin.glm.golden.train import train
from fanin.param_server.facts import ParamServerConfig, ServerLayout, WorkerLayout
from fanin.param_server.golden import ParameterServer
from fanin.ring.facts import PRESETS as RING
from fanin.ring.golden.all_reduce import all_reduce


def write(name: str, content: bytes, width: int) -> None:
    """Write ``content`` in words of ``width`` bits, little-endian, the last one filled with zeros."""
    size = width // 8
    padded = content + bytes(-len(content) % size)
    words = [padded[n : n + size][::-1].hex() for n in range(0, len(padded), size)]
    Path(name).write_text("\n".join(words) + "\n")


def settings(name: str, **numbers: int) -> None:
    """Write the numbers of a bench as Verilog constants."""
    lines = [f"localparam [31:0] {key.upper()} = {value};" for key, value in numbers.items()]
    Path(name).write_text("\n".join(lines) + "\n")


def cluster() -> None:
    """Memory before and after a training of the network `tiny` on six images, in batches of four."""
    network, frames = EXAMPLES["tiny"], 6
    job = Job.of(frames, batch=4, rate=0.5, momentum=0.9)
    memory_map = MemoryMap(network, frames=frames)
    rng = np.random.default_rng(1)
    image = network.stages[network.images].layer.output
    classes = network.stages[network.labels].layer.output.c
    images = rng.standard_normal((frames, image.h, image.w, image.c)).astype(np.float32)
    labels = np.eye(classes, dtype=np.float32)[rng.integers(0, classes, frames)]
    states = initial_state(network, seed=1)
    golden = GoldenNetwork(network, states)
    content = np.zeros(memory_map.end, np.uint8)
    host = HostMemory(memory_map, content)

    def write_parameters() -> None:
        stages = [network.stages[stage] for stage in state_stages(network)]
        host.write_parameters(
            [
                state_image(stage.layer, stage.parallelism, golden.states[place])
                for stage, place in zip(stages, state_stages(network), strict=True)
            ]
        )

    write_parameters()
    host.write_frames(images, labels)
    write("cluster_memory.hex", content.tobytes(), 512)
    results = golden.train(images, labels, job).reshape(frames, -1).view(np.uint32)
    write_parameters()
    packed = pack(results, results.shape[1]).view(np.uint8)
    address = memory_map.region("results").address
    content[address : address + len(packed)] = packed
    write("cluster_expected.hex", content.tobytes(), 512)
    settings(
        "cluster_settings.vh",
        words=memory_map.end // 64,
        parameters_end=memory_map.region("parameters").end,
        frames=frames,
        batch=job.batch,
        **{name: memory_map.region(name).address for name in ("parameters", "images", "labels", "results")},
        **{name: int(getattr(job, name).view(np.uint32)) for name in ("eta", "last_eta", "momentum")},
    )


def glm() -> None:
    """Samples, labels and settings of an epoch of two mini-batches, and the model after it."""
    config = GLM["tiny"]
    shape = TrainShape(node=config, workers=1, samples=64, columns=20, batch=32)
    loss, rate = Loss.LOGISTIC, fixed.learning_rate(0.5 / shape.batch)
    rng = np.random.default_rng(1)
    features = rng.integers(0, 1 << shape.precision, (shape.samples, shape.columns), dtype=np.uint8)
    labels = fixed.labels(rng.integers(0, 2, shape.samples), loss, config.frac)
    (golden,) = train(features, labels, shape, loss=loss, rate=rate, epochs=1)
    for port, content in enumerate(split_ports(pack_samples(features, shape, worker=0))):
        write(f"glm_samples{port}.hex", content.tobytes(), 32)
    write("glm_labels.hex", pack_labels(labels, shape, worker=0).tobytes(), 256)
    model = split_model(golden.model, shape, worker=0)
    write("glm_model.hex", model.astype("<i4").tobytes(), 32)
    settings(
        "glm_settings.vh",
        planes=shape.precision,
        loss=int(loss),
        clamp_bits=fixed.clamp_bits(shape.workers),
        mantissa=rate.mantissa,
        shift=rate.shift,
        chunks=shape.chunks,
        mini_batch=shape.micro_batches,
        epoch=shape.micro_batches_per_epoch,
        weights=model.size,
    )


def inceptionn() -> None:
    """A frame of 1,000 bytes of gradients in UDP, and the frame that the other NIC gives to its host."""
    codec = Inceptionn(bound=10)
    gradients = np.random.default_rng(1).normal(0, 2e-3, 250).astype("<f4").tobytes()
    ether = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=TOS_COMPRESSIBLE)
    sent = bytes(ether / ip / UDP(sport=1000, dport=2000) / Raw(gradients))
    wire = packet.transmit(sent, codec)
    write("inceptionn_sent.hex", sent, 256)
    write("inceptionn_restored.hex", packet.receive(wire, codec), 256)
    settings("inceptionn_settings.vh", bytes=len(sent), wire_bytes=len(wire))


def ring() -> None:
    """Two vectors of 100 values, and their sum."""
    config = RING["tiny"]
    vectors = np.random.default_rng(1).standard_normal((2, 100), dtype=np.float32)
    for rank, vector in enumerate(vectors):
        write(f"ring_{rank}.hex", vector.tobytes(), config.memory_width)
    write("ring_sum.hex", all_reduce(list(vectors), config).tobytes(), config.memory_width)


def param_server() -> None:
    """Memories of a server and of its only worker before and after an update of ten parameters."""
    config = ParamServerConfig(parameters=10, workers=1, slots=1, rows=2, width=128)
    layout, own = ServerLayout(config, 0, base=0x1000), WorkerLayout(config, base=0x100)
    rng = np.random.default_rng(1)
    golden = ParameterServer(layout, rate=0.5, initial=rng.standard_normal(10))
    write("param_server_before.hex", bytes(golden.memory), config.width)
    table, table_bytes = layout.region(0)
    slot = layout.slot(0, 0)
    golden.memory[slot.gradient : slot.gradient + 40] = rng.standard_normal(10).astype("<f4").tobytes()
    golden.memory[slot.gvnum : slot.gvnum + 4] = (1).to_bytes(4, "little")
    memory = bytearray(own.base + own.size)
    gradient = own.slot(0, 0).base
    memory[gradient : gradient + slot.size] = golden.memory[table : table + table_bytes]
    write("param_server_worker.hex", bytes(memory), config.width)
    golden.apply(0)
    push = golden.push(0)
    buffers, buffers_bytes = own.region(0)
    buffer = buffers + push.remote
    memory[buffer : buffer + push.length] = golden.memory[push.local : push.local + push.length]
    write("param_server_after.hex", bytes(golden.memory), config.width)
    write("param_server_received.hex", bytes(memory), config.width)
    settings(
        "param_server_settings.vh",
        server_ip=0x0A000001,
        worker_ip=0x0A000002,
        key=0x5EED,
        number_of_rows=config.rows,
        step=int(golden.step.view(np.uint32)),
        model_bytes=config.shard_bytes(0),
        rows=layout.row(0).base,
        row_bytes=layout.row(0).size,
        table=table,
        table_end=table + table_bytes,
        buffers=buffers,
        buffers_end=buffers + buffers_bytes,
        buffer_end=buffer + push.length,
        gradient=gradient,
        server_words=len(golden.memory) // 16,
        worker_words=len(memory) // 16,
    )
    with Path("param_server_settings.vh").open("a") as file:
        file.write("localparam [47:0] SERVER_MAC = 48'h020000000001, WORKER_MAC = 48'h020000000002;\n")


def rdma() -> None:
    """Write 8 KiB of random bytes for one node, and of bytes 0xEE for the other."""
    write("rdma_0.hex", np.random.default_rng(1).bytes(8192), 128)
    write("rdma_1.hex", b"\xee" * 8192, 128)


BENCHES: dict[str, Callable[[], None]] = {
    "cluster": cluster,
    "glm": glm,
    "inceptionn": inceptionn,
    "param_server": param_server,
    "rdma": rdma,
    "ring": ring,
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        BENCHES[name]()
