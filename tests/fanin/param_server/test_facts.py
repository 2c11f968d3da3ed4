"""The parameter server's memory: nothing overlaps, everything streamed is aligned, versions lie last."""

import random
from itertools import pairwise

import pytest

from fanin.param_server.facts import (
    FLOAT_BYTES,
    MAX_PARAMETERS,
    MODEL_BUFFERS,
    VERSION_BYTES,
    ParamServerConfig,
    ServerLayout,
    WorkerLayout,
)
from fanin.wire.rdma import MAX_MESSAGE_BYTES
from tests.support import new_seed


def _random_config(rng):
    width = rng.choice((128, 256, 512))
    servers = rng.randint(1, 8)
    return ParamServerConfig(
        parameters=rng.randint(servers * width // 32, 5000),
        workers=rng.randint(1, 40),
        slots=rng.randint(1, 8),
        servers=servers,
        rows=rng.randint(1, 8),
        width=width,
    )


def _slot_stretches(slot, config):
    size = config.shard_values(slot.shard) * FLOAT_BYTES
    return [(slot.gradient, size), (slot.others, VERSION_BYTES), (slot.gvnum, VERSION_BYTES)]


def _row_stretches(row, config):
    size = config.shard_values(row.shard) * FLOAT_BYTES
    return [
        (row.head_version, VERSION_BYTES),
        (row.w, size),
        (row.lgvnum, config.workers * VERSION_BYTES),
        (row.tail_version, VERSION_BYTES),
    ]


def _check_apart(stretches, base, size):
    ordered = sorted(stretches)
    assert ordered[0][0] >= base
    assert ordered[-1][0] + ordered[-1][1] <= base + size
    assert all(a + length <= b for (a, length), (b, _) in pairwise(ordered))


@pytest.mark.parametrize("name", ["parameters", "workers", "slots", "servers", "rows"])
@pytest.mark.parametrize("value", [0, -1, 1 << 30, 1.5])
def test_sizes_out_of_range_are_refused_by_name_value_and_limit(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be 1 to \d+, not {value}"):
        ParamServerConfig(**{"parameters": 1000, name: value})


def test_a_width_that_no_bus_has_is_refused():
    with pytest.raises(ValueError, match="width must be one of 128, 256, 512, not 500"):
        ParamServerConfig(parameters=1000, width=500)


def test_more_servers_than_words_of_w_are_refused():
    with pytest.raises(ValueError, match="servers must be at most the 2 words of 17 parameters, not 3"):
        ParamServerConfig(parameters=17, servers=3)


def test_a_base_between_words_is_refused():
    config = ParamServerConfig(parameters=100)
    for layout in (lambda: ServerLayout(config, 0, 32), lambda: WorkerLayout(config, -64)):
        with pytest.raises(ValueError, match="base must be a multiple of 64 bytes, not"):
            layout()


def test_the_largest_gradient_is_one_message():
    config = ParamServerConfig(parameters=MAX_PARAMETERS, workers=1)
    assert ServerLayout(config, 0).slot(0, 0).size <= MAX_MESSAGE_BYTES


def test_shards_are_all_of_w_once_in_whole_words():
    rng = random.Random(new_seed())
    for _ in range(100):
        config = _random_config(rng)
        ends = [config.shard_start(s) + config.shard_values(s) for s in range(config.servers)]
        assert [config.shard_start(s) for s in range(1, config.servers)] == ends[:-1]
        assert ends[-1] == config.parameters
        assert all(config.shard_start(s) % config.lanes == 0 for s in range(config.servers))


def test_nothing_in_a_servers_memory_overlaps():
    rng = random.Random(new_seed())
    for _ in range(6):
        config = _random_config(rng)
        for shard in range(config.servers):
            layout = ServerLayout(config, shard, 64 * rng.randrange(1000))
            slots = [layout.slot(w, k) for w in range(config.workers) for k in range(config.slots)]
            stretches = [s for slot in slots for s in _slot_stretches(slot, config)]
            stretches += [s for n in range(config.rows) for s in _row_stretches(layout.row(n), config)]
            _check_apart(stretches, layout.base, layout.size)


def test_nothing_in_a_workers_memory_overlaps():
    rng = random.Random(new_seed())
    for _ in range(6):
        config = _random_config(rng)
        layout = WorkerLayout(config, 64 * rng.randrange(1000))
        shards = range(config.servers)
        rows = [layout.buffer(s, n) for s in shards for n in range(MODEL_BUFFERS)]
        slots = [layout.slot(k, s) for k in range(config.slots) for s in shards]
        stretches = [s for row in rows for s in _row_stretches(row, config)]
        _check_apart(
            stretches + [s for slot in slots for s in _slot_stretches(slot, config)], layout.base, layout.size
        )


def test_what_is_streamed_is_aligned_and_versions_lie_at_the_ends():
    rng = random.Random(new_seed())
    for _ in range(50):
        config = _random_config(rng)
        shard = config.servers - 1
        server, worker = ServerLayout(config, shard), WorkerLayout(config)
        for slot in (server.slot(config.workers - 1, 0), worker.slot(config.slots - 1, shard)):
            assert slot.gradient % config.word_bytes == slot.size % config.word_bytes == 0
            assert slot.gvnum + VERSION_BYTES == slot.base + slot.size
        for row in (server.row(0), worker.buffer(shard, 1)):
            assert (
                row.w % config.word_bytes == row.lgvnum % config.word_bytes == row.size % config.word_bytes == 0
            )
            assert row.base + config.word_bytes == row.head_version + VERSION_BYTES == row.w
            assert row.tail_version + VERSION_BYTES == row.base + row.size
            assert row.lgvnum + config.workers * VERSION_BYTES <= row.tail_version


def test_a_workers_region_is_its_slots_and_no_others():
    config = ParamServerConfig(parameters=100, workers=3, slots=2, servers=2)
    layout = ServerLayout(config, 1)
    for worker in range(3):
        base, size = layout.region(worker)
        last = layout.slot(worker, 1)
        assert (base, base + size) == (layout.slot(worker, 0).base, last.base + last.size)


def test_fifteen_lgvnums_and_the_version_are_one_word():
    row = ServerLayout(ParamServerConfig(parameters=16, workers=15), 0).row(0)
    assert row.size == 3 * 64


def test_versions_take_slots_in_turn_and_wait_for_credit():
    config = ParamServerConfig(parameters=100, slots=3)
    assert [config.slot_of(version) for version in (1, 2, 3, 4)] == [1, 2, 0, 1]
    assert [config.may_push(4, consumed) for consumed in (0, 1, 2, 3)] == [False, True, True, True]
    paper = ParamServerConfig(parameters=100)
    assert [paper.may_push(2, consumed) for consumed in (0, 1)] == [False, True]
    assert [config.row_of(version) for version in (0, 1, 7, 8)] == [0, 1, 7, 0]
    assert [config.buffer_of(consumed) for consumed in (0, 1, 2)] == [0, 1, 0]
