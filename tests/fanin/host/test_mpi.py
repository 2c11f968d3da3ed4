"""INCEPTIONN's all-reduce on MPI, in Python and in C, and C's codecs, beside the golden models."""

import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fanin.codec.facts import (
    BLOCKS,
    MAX_BOUND,
    MAX_MANTISSA,
    MIN_BOUND,
    MIN_MANTISSA,
    MX_BLOCKS,
    TOS_COMPRESSIBLE,
    Bf16,
    Bfp,
    Fp16,
    Inceptionn,
    Mode,
    Mx,
)
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden.codecs import decode, encode
from fanin.codec.golden.exchange import host_ring
from tests.support import new_seed, slow

SOURCES = Path(__file__).parents[3] / "fanin" / "host" / "c"
BIN = Path(sys.executable).parent
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fPIC"]

ALL_REDUCE = """
import sys
import numpy as np
from mpi4py import MPI
from fanin.codec.facts import Bf16, Bfp, Fp16, Inceptionn, Mx
from fanin.codec.formats import Rounding
from fanin.codec.golden.exchange import host_ring
from fanin.host.mpi import allreduce
comm, seed = MPI.COMM_WORLD, int(sys.argv[1])
stray = comm.isend("the program's own", dest=(comm.rank + 1) % comm.size, tag=0x28)
codecs = [None, Inceptionn(), Inceptionn(bound=3), Bfp(), Bfp(block=64, mantissa=3)]
for codec in [*codecs, Mx(), Bf16(), Fp16(Rounding.STOCHASTIC)]:
    for shape in ((1,), (2,), (3,), (5,), (17,), (33, 31), *((int(n),) for n in sys.argv[2:])):
        rng = np.random.default_rng([seed, *shape])
        own = [(rng.standard_normal(shape) * 0.1).astype(np.float32) for _ in range(comm.size)]
        kept = own[comm.rank].copy()
        total = allreduce(comm, own[comm.rank], codec=codec, seed=77)
        golden = host_ring([g.reshape(-1) for g in own], codec, 77).reshape(shape)
        assert total.shape == shape
        assert total.view(np.uint32).tolist() == golden.view(np.uint32).tolist(), (codec, shape)
        assert (own[comm.rank] == kept).all()
        if isinstance(codec, Inceptionn):  # an error on each hop, and binary32's
            exact = np.sum(own, axis=0, dtype=np.float64)
            assert np.abs(total - exact).max() <= comm.size * (2.0**-codec.bound + 1e-6)
assert comm.recv(source=(comm.rank - 1) % comm.size, tag=0x28) == "the program's own"
stray.wait()
print(f"rank {comm.rank} of {comm.size}: equal")
"""
DISAGREE = """
import sys
import numpy as np
from mpi4py import MPI
from fanin.codec.facts import Bfp, Inceptionn
from fanin.host.mpi import allreduce
comm = MPI.COMM_WORLD
what = sys.argv[1] if comm.rank == comm.size - 1 else ""
array = np.zeros(6 if what == "shape" else 5, np.float64 if what == "dtype" else np.float32)
try:
    allreduce(comm, array, codec=Bfp() if what == "codec" else Inceptionn())
except ValueError as error:
    print(error)
"""
C_PROGRAM = """
#include <mpi.h>
#include "fanin.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, failed;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t count = (size_t)atol(argv[2]);
    float *values = malloc(4 * count + 4);
    char name[256];
    snprintf(name, sizeof name, "%s/in%d", argv[1], rank);
    FILE *file = fopen(name, "rb");
    if (fread(values, 4, count, file) != count) return 3;
    fclose(file);
    fanin_codec codec = fanin_none();
    if (argv[3][0] == 'i') codec = fanin_inceptionn(10);
    if (argv[3][0] == 'b') codec = fanin_bfp(16, 7);
    if (argv[3][0] == 'm') codec = fanin_mx(FANIN_E2M1, 16);
    if (argv[3][0] == 'f') codec = fanin_bf16();
    if (argv[3][0] == 's') codec = fanin_mx(FANIN_E4M3, 32), codec.seed = 9;
    if (argc > 4 && rank == 1) codec = fanin_bfp(16, 8);
    failed = fanin_allreduce(&codec, values, values, count, MPI_COMM_WORLD);
    snprintf(name, sizeof name, "%s/out%d", argv[1], rank);
    file = fopen(name, "wb");
    fwrite(values, 4, count, file);
    fclose(file);
    MPI_Finalize();
    return failed ? 4 : 0;
}
"""


def _mpiexec(ranks, *command):
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(
        [BIN / "mpiexec", "-n", str(ranks), *map(str, command)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


@pytest.mark.parametrize(
    ("ranks", "lengths"), [(4, [1000]), (3, []), (1, []), *slow((4, [10**6]), (7, [99_991]))]
)
def test_all_ranks_have_the_golden_sum(ranks, lengths):
    done = _mpiexec(ranks, sys.executable, "-c", ALL_REDUCE, new_seed() % 2**31, *lengths)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d of \d: equal", done.stdout)) == [
        f"rank {rank} of {ranks}: equal" for rank in range(ranks)
    ]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("shape", "rank 2: shape must be that of rank 0, (5,), not (6,)"),
        ("dtype", "rank 2: array must be of float32, not ndarray of float64"),
        (
            "codec",
            "rank 2: codec must be that of rank 0, inceptionn, 2^-10, strict, group 8, "
            "not bfp, block 16, mantissa 7",
        ),
    ],
)
def test_ranks_that_disagree_are_all_told(what, message):
    done = _mpiexec(3, sys.executable, "-c", DISAGREE, what)
    assert done.stdout.count(message) == 3, done.stderr


class _Codec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("kind", "bound", "strict", "block", "mantissa", "element")]
    _fields_ += [("seed", ctypes.c_uint32)]


class _Library:
    """C's codecs: streams and values."""

    def __init__(self, path):
        self._c = ctypes.CDLL(str(path))
        self._c.fanin_max_bytes.restype = self._c.fanin_encode.restype = ctypes.c_size_t
        self.compressed = self._c.fanin_compressed

    def most(self, codec, count):
        return self._c.fanin_max_bytes(ctypes.byref(codec), ctypes.c_size_t(count))

    def encode(self, codec, values):
        room = self.most(codec, values.size)
        out = np.full(room + 8, 0xA5, dtype=np.uint8)
        length = self._c.fanin_encode(
            ctypes.byref(codec), _pointer(values), ctypes.c_size_t(values.size), _pointer(out)
        )
        assert length <= room
        assert (out[room:] == 0xA5).all()
        return out[:length].tobytes()

    def decode(self, codec, stream, count):
        values = np.full(count + 2, 7, dtype=np.float32)
        data = np.frombuffer(stream + b"\0", dtype=np.uint8)
        sizes = ctypes.c_size_t(len(stream)), ctypes.c_size_t(count)
        wrong = self._c.fanin_decode(ctypes.byref(codec), _pointer(data), sizes[0], _pointer(values), sizes[1])
        assert (values[count:] == 7).all()
        return None if wrong else values[:count]


def _pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def _in_c(codec):
    if isinstance(codec, Inceptionn):
        return _Codec(1, codec.bound, int(codec.mode is Mode.STRICT))
    if isinstance(codec, Bfp):
        return _Codec(2, block=codec.block, mantissa=codec.mantissa)
    seed = SEED if codec.rounding is Rounding.STOCHASTIC else 0
    if isinstance(codec, Mx):
        return _Codec(3, block=codec.block, element=codec.element.id, seed=seed)
    return _Codec(codec.kind.id, seed=seed)


SEED = 0xFEDCBA98
CODECS = [Inceptionn(bound=b, mode=m) for b, m in product(range(MIN_BOUND, MAX_BOUND + 1), Mode)]
CODECS += [Bfp(block=b, mantissa=m) for b, m in product(BLOCKS, (MIN_MANTISSA, 4, 7, MAX_MANTISSA))]
CODECS += [Mx(e, b, r) for e, b, r in product(Element, MX_BLOCKS, Rounding)]
CODECS += [half(r) for half, r in product((Bf16, Fp16), Rounding)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "libfanin.so"
    subprocess.run(
        [
            "gcc",
            *FLAGS,
            "-shared",
            "-o",
            path,
            *(SOURCES / f"{name}.c" for name in ("codec", "minifloat", "socket")),
        ],
        check=True,
    )
    return _Library(path)


def test_streams_in_c_are_pythons(library):
    rng = np.random.default_rng(new_seed())
    for codec in CODECS:
        c = _in_c(codec)
        for count in (0, 1, *rng.integers(2, 400, 3)):
            small = (rng.standard_normal(count) * 10.0 ** rng.integers(-6, 2)).astype(np.float32)
            any_bits = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
            for values in (small, any_bits):
                stream = encode(values, codec, SEED)
                assert library.encode(c, values) == stream
                found = library.decode(c, stream, int(count))
                assert (
                    found.view(np.uint32).tolist() == decode(stream, int(count), codec).view(np.uint32).tolist()
                )
                if count:
                    assert library.decode(c, stream[:-1], int(count)) is None
                    assert library.decode(c, stream + b"\0", int(count)) is None


@pytest.mark.parametrize("codec", [*map(Mx, Element), Bf16(), Fp16()], ids=str)
def test_c_decodes_any_stream_of_narrow_formats(library, codec):
    """All codes under all scales: those that no encoder writes, too."""
    codes = np.arange(1 << 16, dtype="<u2").tobytes()
    if isinstance(codec, Mx):
        elements = np.resize(np.arange(256, dtype=np.uint8), (256 * 8, codec.block_bits // 8 - 1))
        codes = np.column_stack([np.arange(256, dtype=np.uint8).repeat(8), elements]).tobytes()
    count = 1 << 16
    found, expected = library.decode(_in_c(codec), codes, count), decode(codes, count, codec)
    assert found.view(np.uint32).tolist() == expected.view(np.uint32).tolist()


def test_codecs_that_there_are_not_take_no_bytes(library):
    wrong = [
        _Codec(1, 0, 1),
        _Codec(1, 16, 1),
        _Codec(2, block=5, mantissa=7),
        _Codec(2, block=16, mantissa=2),
        _Codec(3, block=8),
        _Codec(3, block=32, element=6),
        _Codec(6, 5, 1, 16, 7),
    ]
    for codec in wrong:
        assert library.most(codec, 100) == 0
        assert library.decode(codec, b"", 0) is None
    assert library.decode(_Codec(0), b"\0\0\x80?", 1).tolist() == [1.0]


def test_a_socket_is_marked_with_segments_of_whole_values(library):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        assert library.compressed(client.fileno(), 1001) == -1
        assert library.compressed(client.fileno(), 1000) == 0
        client.connect(server.getsockname())
        with server.accept()[0]:
            assert library.compressed(client.fileno(), 0) == 0
            assert client.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == TOS_COMPRESSIBLE
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) <= 1000
    assert library.compressed(-1, 0) == -1


@pytest.mark.parametrize("count", [1, 3, 4, 1001])
def test_a_c_program_of_four_ranks(tmp_path, count):
    (tmp_path / "main.c").write_text(C_PROGRAM)
    sources = [
        tmp_path / "main.c",
        *(SOURCES / f"{name}.c" for name in ("codec", "minifloat", "socket", "allreduce")),
    ]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    compiler = shutil.which("mpicc", path=environment["PATH"])
    flags = [flag for flag in FLAGS if flag != "-Wconversion"]
    subprocess.run(
        [compiler, *flags, "-I", SOURCES, "-o", tmp_path / "main", *sources], check=True, env=environment
    )
    rng = np.random.default_rng(new_seed())
    own = [(rng.standard_normal(count) * 0.1).astype(np.float32) for _ in range(4)]
    for rank, values in enumerate(own):
        values.tofile(tmp_path / f"in{rank}")
    codecs = {"none": None, "inceptionn": Inceptionn(), "bfp": Bfp(), "mx": Mx(Element.E2M1, 16), "f": Bf16()}
    codecs["stochastic"] = Mx(rounding=Rounding.STOCHASTIC)
    for name, codec in codecs.items():
        done = _mpiexec(4, tmp_path / "main", tmp_path, count, name)
        assert done.returncode == 0, done.stderr
        golden = host_ring(own, codec, 9)
        for rank in range(4):
            found = np.fromfile(tmp_path / f"out{rank}", dtype=np.uint32)
            assert found.tolist() == golden.view(np.uint32).tolist(), (name, rank)
    assert _mpiexec(4, tmp_path / "main", tmp_path, count, "bfp", "other").returncode == 4
