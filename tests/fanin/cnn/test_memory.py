"""The memory map of a device: nothing overlaps, everything is aligned, and what is too large is refused."""

from itertools import pairwise

import numpy as np
import pytest

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.memory import BEAT_BYTES, Frames, MemoryMap, Ring, pack, stage_bytes, unpack

every_network = pytest.mark.parametrize("name", sorted(EXAMPLES))


@every_network
def test_regions_follow_one_another_from_beat_to_beat(name):
    memory = MemoryMap(EXAMPLES[name], frames=7)
    assert memory.regions[0].address == 0
    for one, other in pairwise(memory.regions):
        assert one.end == other.address
        assert one.size > 0
        assert other.address % BEAT_BYTES == 0


@every_network
def test_stages_together_take_all_of_it(name):
    network = EXAMPLES[name]
    memory = MemoryMap(network, frames=7)
    taken = [stage_bytes(stage, memory.rings.get(i, 0), 7) for i, stage in enumerate(network.stages)]
    assert sum(taken) == memory.end


@every_network
def test_places_of_parameters_and_rings_do_not_depend_on_the_frames(name):
    small, large = (MemoryMap(EXAMPLES[name], frames=frames) for frames in (1, 100))
    assert small.store == large.store
    assert large.region("results").size == 100 * BEAT_BYTES


def test_sizes_are_those_of_the_layers():
    network = EXAMPLES["tiny"]
    memory = MemoryMap(network, frames=2, rings={2: 4, 4: 3, 6: 1})
    beats = {region.name: region.size // BEAT_BYTES for region in memory.regions}
    # 144 + 8 + 24 + 6 words; frames of 72 words, 144 bits and 4 words; images of 72 words.
    assert beats == {
        "parameters": 9 + 1 + 2 + 1,
        "ring 2": 4 * 5,
        "ring 4": 3,
        "ring 6": 1,
        "images": 2 * 5,
        "labels": 2,
        "results": 2,
    }
    assert memory.store.rings[1] == Ring(Frames(5, 1), 3, (9 + 1 + 2 + 1 + 4 * 5) * BEAT_BYTES)
    assert memory.store.sections == (144, 8, 24, 6)


def test_parameters_in_memory_have_regions_of_their_own():
    network = EXAMPLES["streamed"]
    memory = MemoryMap(network, frames=2)
    beats = {region.name: region.size // BEAT_BYTES for region in memory.regions}
    assert beats["parameters"] == 1  # a bias of 3 words, and their velocities
    assert beats["weights 2"] == beats["velocities 2"] == 72 * 24 // 16
    assert memory.store.sections == (6,)
    first, second, last = memory.store.spilled
    assert (first.frames, first.gradient) == (Frames(72 * 24, 6), False)
    assert (second.frames, second.gradient) == (Frames(24 * 20, 4), True)
    assert [memory.region(f"velocities {n}").address for n in (2, 4, 6)] == [
        one.velocities for one in memory.store.spilled
    ]
    # 108 beats from beat 109 on, 30 from beat 247 on, 4 from beat 281 on: bursts end at multiples of 16.
    assert [one.velocity_bursts for one in (first, second, last)] == [8, 3, 1]


def test_state_is_found_wherever_it_lies():
    network = EXAMPLES["streamed"]
    memory = MemoryMap(network, frames=2)
    assert memory.state_words(4) == (("weights 4", 0, 480), ("velocities 4", 0, 480))
    assert memory.state_words(7) == (("parameters", 0, 6),)
    assert MemoryMap(EXAMPLES["tiny"], frames=1).state_words(3) == (("parameters", 144, 8),)


def test_a_map_larger_than_memory_says_what_is_large():
    with pytest.raises(
        ValueError, match=r"tiny needs \d+ bytes of memory, and the device has 4096; .*, is images"
    ):
        MemoryMap(EXAMPLES["tiny"], frames=1000, size=4096)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frames": 0}, "frames must be at least 1, not 0"),
        ({"rings": {2: 4}}, r"rings must be those of the stages \[2, 4, 6\], not of \[2\]"),
        ({"rings": {2: 4, 4: 0, 6: 1}}, "capacity of a ring must be at least 1 frame, not 0"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        _ = MemoryMap(**{"network": EXAMPLES["tiny"], "frames": 1} | change).store


def test_frames_are_filled_up_to_whole_beats():
    words = np.arange(40, dtype=np.uint32).reshape(2, 20)
    packed = pack(words, 20)
    assert packed.tolist() == [*range(20), *12 * [0], *range(20, 40), *12 * [0]]
    assert np.array_equal(unpack(packed, 20), words)
