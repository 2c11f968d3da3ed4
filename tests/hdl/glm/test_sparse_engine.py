# amaranth: UnusedElaboratable=no
"""One sparse engine against NumPy, bit for bit: any fill, any order of its lists; its cycles."""

import random

import pytest

from fanin.fixed import Decay
from tests.hdl.glm.engine_job import run
from tests.hdl.glm.sparse_job import sparse_job
from tests.support import new_seed, slow

EXTRA = 2
DECAYS = [None, Decay(3), *slow((Decay(0),), (Decay(1),), (Decay(24, 0),))]


def _check(job, **arguments):
    result = run(job, **arguments)
    pas, model = job.expected()
    assert result.pas == pas
    assert result.model == model
    return result


@pytest.mark.parametrize("fill", [0, 0.3, 1, *slow(0.05, 0.6, 0.9)])
@pytest.mark.parametrize(("chunks", "planes"), [(5, 2), (2, 1), *slow((1, 1), (1, 8), (9, 3), (40, 1))])
@pytest.mark.parametrize("decay", DECAYS)
def test_every_fill_is_bit_exact_under_stalls(fill, chunks, planes, decay):
    seed = new_seed()
    rng = random.Random(seed)
    job = sparse_job(
        rng, fill=fill, chunks=chunks, planes=planes, mini_batch=rng.randint(1, 4), micros=7, epochs=2
    )
    job.decay = decay
    _check(job, seed=seed, stall=0.4, depth=chunks + rng.randint(0, 3), fifo_depth=chunks * planes + 2)


@pytest.mark.parametrize("seed", [0, *slow(*range(1, 20))])
@pytest.mark.parametrize("decay", [None, Decay(2, spared=5)])
def test_random_lists_are_bit_exact_at_full_rate(seed, decay):
    rng = random.Random(seed)
    job = sparse_job(rng, chunks=6, planes=2, mini_batch=3, micros=20, epochs=2)
    job.decay = decay
    _check(job, seed=seed, stall=0, fifo_depth=60)


@pytest.mark.parametrize("planes", [1, 4])
def test_one_item_a_cycle_between_entries_and_micro_batches(planes):
    job = sparse_job(random.Random(1), fill=1, chunks=3, planes=planes, mini_batch=5, micros=5, epochs=1)
    result = _check(job, seed=1, stall=0, fifo_depth=100)
    first = result.word_cycles[0]
    assert result.word_cycles == list(range(first, first + 3 * planes * 5))


@pytest.mark.parametrize("planes", [1, 3])
def test_an_item_follows_the_final_write_for_which_it_waits(planes):
    """One cycle more than in a dense engine for the queue of scales, one for the count of missing writes."""
    job = sparse_job(random.Random(2), fill=1, chunks=1, planes=planes, mini_batch=1, micros=6, epochs=1)
    result = _check(job, seed=2, stall=0, fifo_depth=60)
    for word, scale in zip(result.word_cycles[planes::planes], result.scale_cycles, strict=False):
        assert word - scale == 5 + planes + EXTRA
