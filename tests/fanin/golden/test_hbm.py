"""A modelled pseudo-channel keeps the standard's rules, and is as fast as an Alveo U280's was measured."""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from fanin.golden.hbm import Burst, Command, Kind, PseudoChannel, place, serve
from fanin.hbm import BLOCK_BYTES, HBM2
from tests.support import new_seed

PORT_PS = 2222  # 450 MHz
WORD = {"beats": 1, "word_bytes": BLOCK_BYTES}
ROW = 1 << 14  # bytes from a bank's row to its next one


def latency(*addresses):
    """In ns, of the last of some words, read long after one another."""
    bursts = [Burst(500 * index, address, **WORD) for index, address in enumerate(addresses)]
    return (serve(HBM2, [bursts], period_ps=PORT_PS)[0][-1] - bursts[-1].edge * PORT_PS) / 1000


@pytest.mark.parametrize(
    ("addresses", "measured"),
    [([0, 64], 106.7), ([0], 122.2), ([0, ROW], 137.8)],
    ids=["hit", "closed", "miss"],
)
def test_a_word_comes_as_late_as_it_was_measured_to(addresses, measured):
    assert latency(*addresses) == pytest.approx(measured, abs=0.1)


def bandwidth(hbm, addresses, ports=1):
    """GB/s of bursts of 16 blocks that are all asked for at once."""
    bursts = [Burst(0, address, 16, BLOCK_BYTES) for address in addresses]
    words = serve(hbm, [bursts] * ports, period_ps=PORT_PS)
    return sum(map(len, words)) * BLOCK_BYTES * 1000 / max(own[-1] for own in words)


IN_A_ROW = range(0, 1 << 19, 512)


def test_words_in_a_row_come_at_the_peak_less_refreshes():
    """13.27 GB/s were measured (425 of 32 pseudo-channels)."""
    lost = HBM2.refresh_cycle + HBM2.precharge + HBM2.activate_to_read  # closing rows, and opening the next
    bound = HBM2.gigabytes_a_second * (1 - lost / HBM2.refresh)
    found = bandwidth(HBM2, IN_A_ROW)
    assert found == pytest.approx(bound, rel=0.005)
    assert found == pytest.approx(425 / 32, rel=0.005)


def test_without_refreshes_they_come_at_the_peak():
    never = replace(HBM2, refresh=1 << 40)
    assert bandwidth(never, IN_A_ROW) == pytest.approx(HBM2.gigabytes_a_second, rel=0.01)


def test_an_address_map_that_stays_in_a_bank_group_halves_them():
    assert bandwidth(replace(HBM2, address_map="GGBBCCCCC"), IN_A_ROW) == pytest.approx(13.3 / 2, rel=0.02)


def test_a_bank_whose_row_changes_takes_a_row_cycle_for_each():
    """A block of each row of one bank: nothing of them overlaps."""
    never = replace(HBM2, refresh=1 << 40)
    rows = [Burst(0, ROW * row, **WORD) for row in range(100)]
    (words,) = serve(never, [rows], period_ps=PORT_PS)
    cycle = (HBM2.activate_to_precharge + HBM2.precharge) * HBM2.period_ps
    assert {b - a for a, b in pairwise(words)} == {cycle}


def test_two_ports_of_a_channel_get_half_of_it_each():
    shared = replace(HBM2, ports_per_channel=2)
    half = IN_A_ROW[: len(IN_A_ROW) // 2]
    assert bandwidth(shared, half, ports=2) == pytest.approx(425 / 32, rel=0.005)


def test_words_narrower_than_a_block_share_its_access():
    (words,) = serve(HBM2, [[Burst(0, 24, 6, 8)]], period_ps=PORT_PS)  # blocks 0, 1: one word, four, one
    assert Counter(words) == {words[0]: 1, words[1]: 4, words[5]: 1}


def test_blocks_in_a_row_alternate_between_bank_groups_and_fill_rows():
    places = [place(HBM2, block) for block in range(64)]
    assert {where.row for where in places} == {0}
    assert [where.group & 1 for where in places] == [0, 1] * 32
    assert {where.bank for where in places} == {0}
    assert place(HBM2, 64).bank == 1
    assert len({place(HBM2, block) for block in range(1 << 12)}) == 1 << 12
    assert place(HBM2, 512).row == 1


@pytest.mark.parametrize("number", [0, 5])
def test_refreshes_are_a_refresh_interval_apart_and_each_channel_has_its_turn(number):
    channel = PseudoChannel(HBM2, number)
    channel.read(0, 10 * HBM2.refresh)
    cycles = [command.cycle for command in channel.commands if command.kind is Kind.REFRESH]
    assert cycles[0] == HBM2.refresh + number * HBM2.refresh // 16
    assert {b - a for a, b in pairwise(cycles)} == {HBM2.refresh}


def commands_of(seed, hbm=HBM2, reads=1500):
    """Of random reads: some in a row, some of the same few banks, some after a pause."""
    rng = random.Random(seed)
    channel, now, block = PseudoChannel(hbm), 0, 0
    for _ in range(reads):
        now += rng.choice([0, 0, 0, 1, 2, 50]) + 4000 * (rng.random() < 0.003)
        block = rng.choice([block + 1, block + 2, rng.randrange(1 << 16), rng.randrange(4) << 9])
        channel.read(block, now)
    return channel.commands


ACT, RD, PRE, REF = Kind.ACTIVATE, Kind.READ, Kind.PRECHARGE, Kind.REFRESH
EVERYWHERE, GROUP, BANK = range(3)
#: What must lie how many cycles apart, and where; by the parameter that says so.
RULES = {
    "access": (RD, RD, HBM2.access, EVERYWHERE),
    "same_group": (RD, RD, HBM2.same_group, GROUP),
    "activates": (ACT, ACT, HBM2.activates, EVERYWHERE),
    "activates_same_group": (ACT, ACT, HBM2.activates_same_group, GROUP),
    "activate_to_read": (ACT, RD, HBM2.activate_to_read, BANK),
    "activate_to_precharge": (ACT, PRE, HBM2.activate_to_precharge, BANK),
    "read_to_precharge": (RD, PRE, HBM2.read_to_precharge, BANK),
    "precharge": (PRE, ACT, HBM2.precharge, BANK),
    "precharge, refresh": (PRE, REF, HBM2.precharge, BANK),
    "refresh_cycle": (REF, ACT, HBM2.refresh_cycle, EVERYWHERE),
}
PAIRS = {
    pair: [(n, *r[2:]) for n, r in RULES.items() if r[:2] == pair] for pair in {r[:2] for r in RULES.values()}
}


def together(first, second):
    """How near the banks of two commands are; one of all banks is near to each."""
    if -1 in (first.group, second.group):
        return BANK
    return (first.group == second.group) * (1 + (first.bank == second.bank))


def violations(commands):
    """Rules that commands break, each pair of them looked at on its own; ``four_activates`` of each five."""
    broken = set()
    commands = sorted(commands, key=lambda command: command.cycle)
    activates = [command.cycle for command in commands if command.kind is ACT]
    if any(fifth - first < HBM2.four_activates for first, fifth in zip(activates, activates[4:], strict=False)):
        broken.add("four_activates")
    for index, first in enumerate(commands):
        end = first.cycle + (HBM2.refresh_cycle if first.kind is REF else HBM2.activate_to_precharge)
        for second in commands[index + 1 :]:
            if second.cycle >= end:
                break
            for name, least, where in PAIRS.get((first.kind, second.kind), ()):
                if second.cycle - first.cycle < least and together(first, second) >= where:
                    broken.add(name)
    return broken


def misplaced(commands: list[Command]):
    """Reads of a row that is not open, activates of a bank that is, and refreshes beside an open one."""
    rows: dict[tuple[int, int], int] = {}
    order = [Kind.PRECHARGE, Kind.REFRESH, Kind.ACTIVATE, Kind.READ]
    for command in sorted(commands, key=lambda command: (command.cycle, order.index(command.kind))):
        bank = command.group, command.bank
        match command.kind:
            case Kind.PRECHARGE if command.bank < 0:
                rows.clear()
            case Kind.PRECHARGE:
                del rows[bank]
            case Kind.ACTIVATE:
                if rows.setdefault(bank, command.row) is not command.row:
                    yield command
            case Kind.READ:
                if rows.get(bank) != command.row:
                    yield command
            case Kind.REFRESH:
                if rows:
                    yield command


def test_no_two_commands_are_closer_than_the_standard_lets_them_be():
    commands = commands_of(new_seed())
    assert Counter(command.kind for command in commands)[Kind.REFRESH] > 3
    assert violations(commands) == set()
    assert list(misplaced(commands)) == []


@pytest.mark.parametrize("name", [*(name for name in RULES if "," not in name), "four_activates"])
def test_the_rules_see_a_channel_that_is_a_cycle_too_fast(name):
    fast = replace(HBM2, **{name: getattr(HBM2, name) - 1})
    assert violations(commands_of(1, fast, reads=500)) >= {name}
