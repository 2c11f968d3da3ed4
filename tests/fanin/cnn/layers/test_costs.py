"""Costs worked out by hand on each family of devices, and NADA's table III as their calibration."""

import pytest

from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.family import Memory, RamKind, family, family_names
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.kinds import layer_kinds
from fanin.cnn.layers.layer import Parallelism, Shape, Storage, memory
from fanin.cnn.layers.logic import device_luts, logic_luts, node_luts
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss

FAMILIES = ("arria10", "ultrascale", "ecp5")
CHIP, DRAM = Storage.CHIP, Storage.DRAM

PHI = Conv(inputs=(Shape(32, 32, 3),), output_channels=16, kernel=(5, 5), stride=(2, 2), padding=(2, 2, 2, 2))
PSI = Conv(
    inputs=(Shape(8, 8, 32),),
    output_channels=64,
    kernel=(3, 3),
    stride=(2, 2),
    padding=(0, 0, 1, 1),
    gradient=True,
)


def taken(layer, storage=CHIP, **parallelism):
    """By family: DSPs, bits, blocks by kind, bits read from DRAM, bits written."""
    found = [layer.cost(Parallelism(**parallelism), storage, family(name)) for name in FAMILIES]
    return {
        name: (cost.dsp, cost.ram_bits, cost.ram_blocks, cost.dram_read, cost.dram_write)
        for name, cost in zip(FAMILIES, found, strict=True)
    }


def test_a_convolution_with_its_parameters_on_chip():
    # 8 multipliers in each of three ways, 2 for the update. Columns of 2 channels, twice: lines of 6 rows of
    # 8×32 words, 64×384, forward, for the weights, and two copies back; 3 blocks of 64 channels, 64×96, for
    # each way back; 2 blocks of results, 64×64. Sums of a block, 128×32. Weights and velocity: 18,432 words,
    # 128×4608. Two queues of 512×48, in LUTs.
    maps, queues, dram = (
        4 * 2 * 64 * 384 + 2 * 2 * 64 * 96 + 2 * 64 * 64 + 128 * 32,
        2 * 512 * 48,
        32 * 8 * 8 * 32,
    )
    bits = maps + 2 * 128 * 4608 + queues
    assert taken(PSI, pic=2, poc=2, ph=2) == {
        # 2 of 512×40 for each of 14 memories of maps; parameters 7 × 5 of 1024×20, one of them true dual port
        "arria10": (26, bits, (14 * 2 + 2 * 35,), dram, dram),
        # results are LUTs; parameters, above half a URAM, 2 × 2 of 4096×72
        "ultrascale": (52, bits, (12 * 2, 2 * 4), dram, dram),
        # sums 4; weights twice 4 × 9 of 512×36, velocities once
        "ecp5": (104, bits, (14 * 2 + 4 + 3 * 36,), dram, dram),
    }


def test_only_dense_layers_keep_parameters_in_dram():
    assert PSI.storages == (CHIP,)
    assert Bias(inputs=(Shape(3, 3, 40),)).storages == (CHIP,)
    assert Dense(inputs=(Shape(4, 4, 40),), output_channels=100).storages == (CHIP, DRAM)


def test_a_depthwise_convolution():
    # 6 multipliers a way. Columns of 3 channels, twice: lines of 5 rows of 6×12 words, 96×60, four times; 3
    # blocks of 6×12 words, 96×36, of results and for each way back. Sums, 192×12. 108 parameters, 96×36.
    layer = DepthwiseConv(
        inputs=(Shape(6, 6, 12),),
        output_channels=12,
        groups=12,
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1, 1, 1),
        gradient=True,
    )
    bits, dram = 4 * 2 * 96 * 60 + 3 * 2 * 96 * 36 + 192 * 12 + 2 * 96 * 36 + 2 * 512 * 48, 32 * 432
    on_chip = {
        # 3 of 512×40 a memory; weights in true dual port 5 of 1024×20
        "arria10": (20, bits, (3 * (8 + 6) + 5 + 3,), dram, dram),
        "ultrascale": (40, bits, (0, 0), dram, dram),  # up to 60 words deep: LUTRAM
        "ecp5": (80, bits, (3 * (8 + 6) + 6 + 3,), dram, dram),
    }
    assert taken(layer, poc=3, ph=2) == on_chip


def test_a_dense_layer():
    # 4×4×40 words flattened; 10 × 4 multipliers, in the first layer with parameters two ways. 3 frames of 640
    # words each way, 320×192, and of 100 gradients, 128×75; 2 of results, 128×50; sums 128×25. Parameters:
    # 64,000, 40 wide, 1280×1600.
    layer = Dense(inputs=(Shape(4, 4, 40),), output_channels=100)
    maps, queues, dram = 2 * 320 * 192 + 128 * (75 + 50 + 25), 2 * 512 * 48, 32 * 640
    bits = maps + 2 * 1280 * 1600 + queues
    assert taken(layer, pic=10, poc=4) == {
        # frames 8 of 512×40, gradients and results 4; parameters 64 × 2 of 1024×20
        "arria10": (82, bits, (2 * 8 + 2 * 4 + 2 * 128,), dram, dram),
        # frames 9 of 512×36, gradients 4; parameters, 2,048,000 bits, 18 of 4096×72
        "ultrascale": (164, bits, (2 * 9 + 4, 2 * 18), dram, dram),
        # frames 9, gradients, results and sums 4; parameters 143 of 2048×9, the weights twice
        "ecp5": (328, bits, (2 * 9 + 3 * 4 + 3 * 143,), dram, dram),
    }
    # queues of 512×160 for weights forward and velocities, which are blocks, and two of 512×48
    found = taken(layer, DRAM, pic=10, poc=4)
    assert found["arria10"][1] == maps + queues + 2 * 512 * 160 + 2 * 512 * 48
    assert found["arria10"][2] == (2 * 8 + 2 * 4 + 2 * 13,)
    assert found["arria10"][3:] == (32 * (640 + 2 * 64000), 32 * (640 + 64000))
    # With a gradient a queue, a pass, and rows of the output's gradient more, 17 rows of 25 terms of 10 words
    # (two tiles of 8 and what comes while a tile's last terms are made), and their 8 sums.
    behind = Dense(inputs=(Shape(4, 4, 40),), output_channels=100, gradient=True)
    found_behind = taken(behind, DRAM, pic=10, poc=4)["arria10"]
    assert found_behind[1] == found["arria10"][1] + 512 * 160 + 128 * 75 + (17 * 25 + 8) * 320
    assert found_behind[3:] == (32 * (640 + 3 * 64000), 32 * (640 + 64000))
    # 1,600 cycles, or as many as beats of 16 words are read: 40 of what was saved, 4,000 a pass
    assert behind.cycles(Parallelism(pic=10, poc=4)) == 1600
    assert behind.cycles(Parallelism(pic=10, poc=4), DRAM) == 40 + 3 * 4000
    assert layer.cycles(Parallelism(pic=10, poc=4), DRAM) == 40 + 2 * 4000


def test_online_normalisation():
    # 2 lanes: forward 2 adders, 1 multiplier, 1 MAC; backward 2, 1, 2; per layer 2 adders and 3 multipliers,
    # and one each backward. State: 10 × 24 words, 7 without a gradient. Saved: the frame and a word a channel.
    layer, dram = OnlineNorm(inputs=(Shape(7, 7, 24),), gradient=True), 32 * (7 * 7 * 24 + 24)
    assert taken(layer, pi=2, po=2) == {
        "arria10": (11 + 8 + 6, 7680 + 2 * 512 * 48, (0,), dram, dram),
        "ultrascale": (8 * 2 + 6 * 2, 7680 + 2 * 512 * 48, (0, 0), dram, dram),
        "ecp5": (8 * 4 + 6 * 4, 7680 + 2 * 512 * 48, (0,), dram, dram),
    }
    first = OnlineNorm(inputs=(Shape(7, 7, 24),))
    assert taken(first, pi=2, po=2)["arria10"] == (4 + 2 + 2 + 5, 7 * 24 * 32, (0,), 0, 0)


def test_a_bias():
    # an adder each way, 2 multipliers and an adder for the update; 20 words twice, and a copy of the weights
    layer = Bias(inputs=(Shape(3, 3, 40),), gradient=True)
    assert taken(layer, pi=2, po=2) == {
        "arria10": (6, 2 * 64 * 20, (0,), 0, 0),
        "ultrascale": (4, 2 * 64 * 20, (0, 0), 0, 0),
        "ecp5": (8, 2 * 64 * 20, (3 * 2,), 0, 0),
    }


def test_luts_are_those_of_operators_logic_and_shallow_memories():
    p, ultrascale = Parallelism(pic=2, poc=2, ph=2), family("ultrascale")
    # 3 ways; 4 weights, 24 words of a step, each turned by one level, 6 words of streams, 6 columns
    logic = 3 * 288 + 4 * 93 + 24 * (40 + 17) + 6 * 23 + 6 * 58
    # what is saved is written and read word by word; outputs and input gradients leave
    logic += 1340 + 1070 + node_luts(ultrascale, [p.po, p.pi])
    assert PSI.logic(p, CHIP, ultrascale) == logic
    depthwise = DepthwiseConv(
        inputs=(Shape(6, 6, 12),), output_channels=12, groups=12, kernel=(3, 3), stride=(1, 1)
    )
    for layer, found in (PSI, p), (depthwise, Parallelism(poc=3, ph=2)):
        memories = layer.memories(found, CHIP)
        parts = ultrascale.luts(layer.operations(found)), ultrascale.ram_luts(memories)
        assert layer.cost(found, CHIP, ultrascale).luts == sum(parts) + layer.logic(found, CHIP, ultrascale)
    assert family("arria10").luts(PSI.operations(p)) == PSI.cost(p, CHIP, family("arria10")).luts == 0


def test_channels_of_the_store_are_logic_of_the_layer_that_they_serve():
    ultrascale = family("ultrascale")
    assert Input(shape=Shape(4, 4, 8)).logic(Parallelism(po=8), CHIP, ultrascale) == 1070 + 1080 + node_luts(
        ultrascale, [8]
    )
    wide = Output(inputs=(Shape(1, 1, 48),))
    assert wide.logic(Parallelism(pi=48, po=48), CHIP, ultrascale) == 1340 + 32 * 105 + node_luts(
        ultrascale, [48]
    )
    dense = Dense(inputs=(Shape(1, 1, 40),), output_channels=10, gradient=True)
    # weights twice and velocities are read, both written; the input is saved
    streams = dense.store_streams(Parallelism(pic=4, poc=5, pi=2), DRAM)
    assert streams == ([2, 20, 20, 20], [2, 20, 20])


def test_what_a_fork_adds_and_what_a_device_has_once_are_luts():
    ultrascale, p = family("ultrascale"), Parallelism(pic=2, poc=2, ph=2)
    alone, forked = (PSI.cost(p, CHIP, ultrascale, sums=sums).luts for sums in (0, 4))
    assert forked - alone == ultrascale.luts({"add": 4}) + logic_luts(ultrascale, "fork", {"sum": 4})
    none, one, three = (device_luts(ultrascale, count) for count in (0, 1, 3))
    assert 0 < none < one
    assert three - none == 3 * (one - none)


def test_memories_too_shallow_for_blocks_are_luts():
    ultrascale, ecp5 = family("ultrascale"), family("ecp5")
    assert ultrascale.ram_luts((Memory(width=29, depth=33), Memory(width=32, depth=65))) == 3 * 2 * 8
    assert ultrascale.ram_luts((Memory(width=29, depth=33, copies=2),)) == 2 * 3 * 2 * 8
    assert ultrascale.ram_luts((Memory(width=28, depth=96, clocked=False),)) == 2 * 3 * 8
    assert ecp5.ram_luts((Memory(width=9, depth=16), Memory(width=9, depth=17))) == 3 * 6
    assert family("arria10").ram_luts((Memory(width=32, depth=16),)) == 0


@pytest.mark.parametrize(
    ("layer", "lanes", "dsp", "bits", "dram"),
    [
        # a mask of 96 bits takes a beat
        (Relu(inputs=(Shape(4, 4, 6),), gradient=True), 3, 0, 512 * (48 + 48), 512),
        (Relu(inputs=(Shape(4, 4, 6),), gradient=True, masked=False), 3, 0, 512 * (48 + 64), 32 * 96),
        (Relu(inputs=(Shape(4, 4, 6),)), 3, 0, 0, 0),
        (Relu6(inputs=(Shape(4, 4, 6),), gradient=True, masked=False), 6, 0, 512 * (48 + 80), 32 * 96),
        (Add(inputs=2 * (Shape(4, 4, 6),), gradient=True), 3, 3, 0, 0),
        (GlobalAvgPool(inputs=(Shape(4, 4, 6),), gradient=True), 3, 3 * 2 + 3, (6 + 12) * 32, 0),
        (GlobalAvgPool(inputs=(Shape(4, 4, 6),)), 3, 3 * 2, 6 * 32, 0),
        # Rows of 4×6 words, 96×8: 10, and on the way back twice 14, as a frame takes 32 cycles; 3 blocks of
        # 2×2×6 words each way, and a block's sums. A MAC each way, and a multiplier for the mean.
        (
            AvgPool(inputs=(Shape(4, 4, 6),), kernel=(2, 2), stride=(2, 2), gradient=True),
            3,
            3 * 3,
            96 * 8 * (10 + 2 * 14) + 96 * 8 * (3 + 3 + 1),
            0,
        ),
        # 10 rows of 4×6 words, 96×8, and twice 13 in which gradients of overlapping windows are added
        (
            Im2col(inputs=(Shape(4, 4, 6),), kernel=(3, 3), stride=(2, 2), gradient=True),
            3,
            3,
            96 * 8 * (10 + 2 * 13),
            0,
        ),
        (Im2col(inputs=(Shape(4, 4, 6),), kernel=(3, 3), stride=(2, 2)), 3, 0, 96 * 8 * 10, 0),
        # a lane 1 forward and 1 back, 5 more; the logits
        (SoftCrossLoss(inputs=2 * (Shape(1, 1, 6),), gradient=True), 3, 2 * 3 + 5, 6 * 32, 0),
        # a queue from memory, and one to it
        (Input(shape=Shape(4, 4, 6)), 3, 0, 512 * 64, 0),
        (Output(inputs=(Shape(1, 1, 6),), gradient=True), 3, 0, 512 * 48, 0),
    ],
)
def test_other_layers_on_arria10(layer, lanes, dsp, bits, dram):
    cost = layer.cost(Parallelism(pi=lanes, po=lanes), CHIP, family("arria10"))
    assert (cost.dsp, cost.ram_bits, cost.dram_read, cost.dram_write) == (dsp, bits, dram, dram)


def test_a_frame_in_memory_is_whole_beats():
    words, mask = (
        Relu(inputs=(Shape(3, 3, 65),), gradient=True, masked=masked).cost(
            Parallelism(), CHIP, family("arria10")
        )
        for masked in (False, True)
    )
    assert (words.dram_read, words.dram_write) == (37 * 512, 37 * 512)  # of 585 words
    assert (mask.dram_read, mask.dram_write) == (2 * 512, 2 * 512)  # of 585 bits


def test_blocks_are_rounded_up_in_width_and_depth_in_the_best_configuration():
    m20k, (bram, uram) = family("arria10").ram[0], family("ultrascale").ram
    for width, depth, blocks in (
        (32, 512, 1),
        (40, 512, 1),
        (41, 512, 2),
        (32, 513, 2),  # two of 1024×20
        (20, 1024, 1),
        (1, 16384, 1),
        (1, 16385, 2),
        (160, 100, 4),
        (64, 4000, 13),  # 4096×5
    ):
        assert m20k.blocks(Memory(width=width, depth=depth)) == blocks
    assert bram.blocks(Memory(width=36, depth=512)) == 1
    assert bram.blocks(Memory(width=37, depth=512)) == 2
    assert bram.blocks(Memory(width=32, depth=4096)) == 8
    assert uram.blocks(Memory(width=73, depth=4097)) == 4
    assert RamKind("flat", 0, ((10, 10),)).blocks(Memory(width=25, depth=31)) == 12


@pytest.mark.parametrize(("name", "deepest"), [("arria10", 32), ("ultrascale", 64), ("ecp5", 16)])
def test_shallow_memories_take_no_blocks(name, deepest):
    found = family(name)
    assert sum(found.ram_blocks((Memory(width=1000, depth=deepest),))) == 0
    assert sum(found.ram_blocks((Memory(width=1, depth=deepest + 1),))) == 1


def test_a_second_read_port_is_a_copy_or_the_other_half_of_true_dual_port_ram():
    m20k, (bram, uram) = family("arria10").ram[0], family("ultrascale").ram
    for kind, depth, plain, true_dual in (
        (m20k, 512, 2, 2),  # twice 512×40, or 2 of 1024×20
        (m20k, 1024, 4, 2),
        (bram, 1024, 4, 2),
        (uram, 4096, 2, 1),
    ):
        weights = Memory(width=36, depth=depth, dual=True)
        assert (kind.blocks(weights), kind.blocks(weights, true_dual=True)) == (plain, true_dual)
        assert kind.blocks(Memory(width=36, depth=depth, copies=2), true_dual=True) == plain


def test_large_memories_go_to_uram():
    found = family("ultrascale")
    assert found.ram_blocks((Memory(width=32, depth=4607),)) == (9, 0)
    assert found.ram_blocks((Memory(width=32, depth=4608),)) == (0, 2)
    assert found.ram_blocks((Memory(width=32, depth=4608), Memory(width=32, depth=512))) == (1, 2)


def test_a_memory_holds_its_words_and_no_lane_more():
    assert memory(12, 4) == Memory(width=128, depth=3)
    assert memory(13, 4) == Memory(width=128, depth=4)


def test_every_kind_of_layer_and_every_family_has_its_constants():
    parts = {"forward", "input_gradient", "weight_gradient", "update", "fixed", "fixed_gradient"}
    mapped = set(FAMILIES) - {"arria10"}  # whose logic yosys does not map
    for kind in layer_kinds().values():
        assert set(kind.OPERATORS) <= parts
        assert all(set(operators) <= {"mac", "mul", "add"} for operators in kind.OPERATORS.values())
        assert set(kind.LUTS) == (mapped if kind.component else set())
    assert family_names() == FAMILIES
    for name in FAMILIES:
        starts = [kind.from_bits for kind in family(name).ram]
        assert starts[0] == 0
        assert starts == sorted(set(starts))


@pytest.mark.parametrize(
    ("layer", "parallelism", "kilobits", "ours"),
    [(PHI, Parallelism(pic=1, poc=4, ph=2), 272.9, 0.69), (PSI, Parallelism(pic=2, poc=2, ph=2), 1446.6, 1.01)],
)
def test_ram_beside_the_estimates_of_nada_s_table_iii(layer, parallelism, kilobits, ours):
    bits = layer.cost(parallelism, CHIP, family("arria10")).ram_bits
    assert bits / 1000 / kilobits == pytest.approx(ours, abs=0.01)


def test_dsps_are_near_those_of_nada_s_table_iii():
    # Both ran at 12 multiplications a cycle, which the parameters of table I do not say.
    twelve = Parallelism(pic=3, poc=2, ph=2)
    assert family("arria10").dsp_blocks(PSI.operations(twelve)) == 38
    assert family("arria10").dsp_blocks(PHI.operations(twelve)) == pytest.approx(32, abs=6)
    assert PHI.cycles(Parallelism(pic=3, poc=2, ph=2)) == 25600  # 3906.25 frames/s at 100 MHz


def test_delays_are_near_those_of_nada_s_table_i():
    assert float(PHI.delay) == pytest.approx(0.23, abs=0.05)
    assert float(PSI.delay) == pytest.approx(0.91, abs=0.05)


def test_a_delay_counts_no_row_that_is_padding():
    pool = AvgPool(inputs=(Shape(4, 4, 1),), kernel=(6, 6), stride=(1, 1), padding=(0, 0, 2, 2))
    assert pool.delay == 1 + 2
    assert (
        GlobalAvgPool(inputs=(Shape(4, 4, 1),)).delay == SoftCrossLoss(inputs=2 * (Shape(1, 1, 4),)).delay == 1
    )
    assert Relu(inputs=(Shape(4, 4, 1),)).delay == 0
