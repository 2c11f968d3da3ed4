"""What a parameter server's host reads and writes in memory when a worker is replaced."""

import struct

import pytest

from fanin.param_server.driver import ParamServerDriver, lgvnum_of, vacated
from fanin.param_server.facts import ParamServerConfig, ServerLayout
from fanin.param_server.golden import ParameterServer
from fanin.rdma.facts import PRESETS

SIZES = ParamServerConfig(parameters=4, workers=2, slots=2, rows=2, width=128)
LAYOUT = ServerLayout(SIZES, 0)
SLOT = 32  # bytes: a word of w, and the trailer


def test_the_slots_are_zeros_but_for_the_trailer_of_the_next_gradient():
    """LGVnum 6 of 20 updates: the next gradient is 7, in the second slot, and 14 updates are of others."""
    content = vacated(LAYOUT, 1, lgvnum=6, version=20)
    assert content == bytes(SLOT + 16) + struct.pack("<4I", 14, 0, 0, 7)
    assert len(content) == LAYOUT.region(1)[1] == 2 * SLOT


def test_the_lgvnum_is_that_of_a_whole_row_no_older_than_asked_for():
    server = ParameterServer(LAYOUT, rate=1.0, initial=[0] * 4)
    memory = server.memory
    row = LAYOUT.row(1)
    assert lgvnum_of(memory, LAYOUT, 1, version=5) is None
    struct.pack_into("<I", memory, row.head_version, 5)
    struct.pack_into("<2I", memory, row.lgvnum, 3, 2)
    assert lgvnum_of(memory, LAYOUT, 1, version=5) is None  # its last word is not there
    struct.pack_into("<I", memory, row.tail_version, 5)
    assert lgvnum_of(memory, LAYOUT, 1, version=5) == 2
    assert lgvnum_of(memory, LAYOUT, 0, version=4) == 3
    assert lgvnum_of(memory, LAYOUT, 1, version=6) is None


def test_a_worker_that_the_node_does_not_have_is_refused():
    driver = ParamServerDriver(PRESETS["tiny"])
    for command in driver.exclude, lambda worker: driver.readmit(worker, buffers=0, rkey=0):
        with pytest.raises(ValueError, match="index must be 0 to 3, not 4"):
            command(4)
