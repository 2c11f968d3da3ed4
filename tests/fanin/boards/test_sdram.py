"""SDRAM of boards: times in cycles, a node's memories in it, and what is larger than these."""

from dataclasses import replace
from itertools import accumulate

import pytest

from fanin.base.errors import DoesNotFit, InputError
from fanin.boards.area import check_fits, memory_area
from fanin.boards.facts import MEMORIES
from fanin.boards.memory import check_lists_fit, check_set_fits, memory_of, node_of
from fanin.boards.sdram import SDRAM_4M, SDRAM_8M
from fanin.glm.facts import PRESETS, TrainShape

NODE = PRESETS["ecp5-45"]


def shape(samples, columns=160):
    return TrainShape(node=NODE, workers=2, samples=samples, columns=columns, batch=64, precision=4)


@pytest.mark.parametrize(
    ("mhz", "cycles"), [(50, (1, 3, 4, 1, 1, 4, 780, 10_000)), (100, (2, 5, 7, 2, 2, 7, 1560, 20_000))]
)
def test_times_are_rounded_to_the_safe_side(mhz, cycles):
    timing = SDRAM_8M.timing(mhz * 1e6)
    assert cycles == (
        timing.activate_to_access,
        timing.activate_to_precharge,
        timing.activate_to_activate,
        timing.activate_to_other,
        timing.precharge,
        timing.refresh_cycle,
        timing.refresh,
        timing.start,
    )


@pytest.mark.parametrize("mhz", [9.9, 100.1])
def test_a_clock_that_the_chips_do_not_take_is_refused(mhz):
    with pytest.raises(InputError, match=rf"core-mhz must be in 10…100 for an SDRAM, not {mhz}"):
        SDRAM_8M.timing(mhz * 1e6)


@pytest.mark.parametrize("sdram", [SDRAM_8M, SDRAM_4M], ids=lambda sdram: sdram.name)
@pytest.mark.parametrize(("ports", "lists"), [(2, 0), (4, 0), (2, 1), (4, 2)])
def test_sample_memories_begin_in_different_banks_and_all_of_it_is_used(sdram, ports, lists):
    samples, labels, list_bytes = sdram.split(ports, lists)
    assert ports * samples + labels + lists * list_bytes == sdram.size
    assert 1 / 9 < labels / sdram.size < (1 / 7 if not lists else 1 / 6)
    assert list_bytes == 0 if not lists else 0.45 < list_bytes / samples <= 0.5
    assert list_bytes % 4 == 0
    begins = [begin // sdram.row_bytes for begin in accumulate([samples] * (ports - 1), initial=0)]
    assert len({begin % sdram.banks for begin in begins}) == min(ports, sdram.banks)


def test_a_set_larger_than_block_ram_fits_into_sdram():
    """40 words of 4 bytes a port and micro-batch: 307 of them in 48 KiB."""
    check_set_fits(shape(307 * 8), MEMORIES["ecp5-45"])
    with pytest.raises(DoesNotFit) as error:
        check_set_fits(shape(307 * 8 + 1), MEMORIES["ecp5-45"])
    assert str(error.value) == (
        "the samples of 2,457 samples take 49,280 bytes, their memory has 49,152: at most 2,456 samples fit, "
        "or more with fanin board build --memory sdram on a board that has SDR SDRAM"
    )
    sdram = memory_of(NODE, SDRAM_8M)
    check_set_fits(shape(22_924 * 8), sdram)
    with pytest.raises(DoesNotFit, match=r"at most 183,392 samples fit$"):
        check_set_fits(shape(22_924 * 8 + 1), sdram)


def test_words_and_lists_of_a_sparse_node_have_memories_of_their_own():
    """A word has 4 bytes a port, an entry 4 bytes: 40 KiB of words, 16 KiB of entries."""
    node = replace(NODE, sparse=True)
    sparse = replace(shape(2_000), node=node)
    block, sdram = memory_of(node, None), memory_of(node, SDRAM_8M)
    check_set_fits(sparse, block)
    check_lists_fit(sparse, words=10_240, entries=4_096, memory=block)
    for words, entries, cause in [
        (10_241, 100, "the words of 2,000 samples take 40,964 bytes, their memory has 40,960: about 1,999 "),
        (100, 4_097, "the list of 2,000 samples takes 16,388 bytes, their memory has 16,384: about 1,999 "),
    ]:
        with pytest.raises(DoesNotFit, match=f"^{cause}samples fit, or more with fanin board build --memory"):
            check_lists_fit(sparse, words=words, entries=entries, memory=block)
        check_lists_fit(sparse, words=words, entries=entries, memory=sdram)
    with pytest.raises(DoesNotFit, match=r"^the labels of 4,097 samples take"):
        check_set_fits(replace(sparse, samples=4_097), block)


def test_sdram_takes_logic_and_no_block_ram():
    """yosys counts 1,767 LUTs, 193 carry chains of two bits, 47 memories of 16 × 4 bits, 1,046 flip-flops."""
    area = memory_area(NODE, memory_of(NODE, SDRAM_8M))
    assert area.block_rams == 0
    assert area.luts == pytest.approx(1767 + 2 * 193 + 6 * 47, rel=0.15)
    assert area.flip_flops == pytest.approx(1046, rel=0.15)


def test_a_node_whose_block_ram_would_be_too_much_fits_beside_sdram():
    larger = PRESETS["ecp5-85"]
    with pytest.raises(DoesNotFit, match="block RAMs"):
        check_fits(larger, "ecp5-45", MEMORIES["ecp5-85"])
    memory = memory_of(larger, SDRAM_8M)
    node = node_of(larger, memory)
    assert node.address_width == 22
    check_fits(node, "ecp5-45", memory)
