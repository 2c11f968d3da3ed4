# amaranth: UnusedElaboratable=no
"""The model memories against two lists of rows, one access a cycle on each way."""

import random

import pytest

from fanin.hdl.glm.model import ModelMemories
from fanin.hdl.glm.shapes import ModelPortSignature
from tests.support import new_seed, simulate

HOST = ModelPortSignature.READ_LATENCY
SIZES = [(1, 2), (2, 8), (5, 16), (4, 32), (3, 64)]


def _value(rng):
    return rng.choice([-(2**31), 2**31 - 1, 0, -1, rng.randint(-(2**31), 2**31 - 1)])


def _quiet(rng, dut):
    """A cycle in which nothing is asked for; every input that then does not matter is random."""
    return {
        "forward_chunk": rng.randrange(dut.depth),
        "backward_chunk": rng.randrange(dut.depth),
        "update": {"valid": 0, "chunk": rng.randrange(dut.depth), "both": rng.getrandbits(1)},
        "weights": [_value(rng) for _ in range(dut.lanes)],
        "clear": 0,
        "host": {
            "chunk": rng.randrange(dut.depth),
            "lane": rng.randrange(dut.lanes),
            "read": 0,
            "write": 0,
            "write_data": _value(rng),
        },
    }


def _update(rng, dut, chunk, both=1):
    return _quiet(rng, dut) | {"update": {"valid": 1, "chunk": chunk, "both": both}}


def _access(rng, dut, **host):
    cycle = _quiet(rng, dut)
    return cycle | {"host": cycle["host"] | host}


def _fill(rng, dut):
    return [_update(rng, dut, chunk) for chunk in range(dut.depth)]


def _settle(rng, dut):
    return [_quiet(rng, dut) for _ in range(HOST + 1)]


def _run(dut, cycles):
    """The outputs in every cycle; ``weights`` obey ``override`` as those of backward's lanes do."""
    seen = []
    outputs = ("forward_weights", "backward_weights", "written", "override", "override_value", "clearing")

    async def process(ctx):
        for inputs in cycles:
            if seen and seen[-1]["override"]:
                inputs["weights"] = [seen[-1]["override_value"]] * dut.lanes
            for name, value in inputs.items():
                if name != "host":
                    ctx.set(getattr(dut, name), value)
            for name, value in inputs["host"].items():
                ctx.set(getattr(dut.host, name), value)
            now = {name: ctx.get(getattr(dut, name)) for name in outputs}
            for name in outputs[:2]:
                now[name] = list(now[name])
            seen.append(now | {"read_data": ctx.get(dut.host.read_data)})
            await ctx.tick()

    simulate(dut, processes=[process], idle=len(cycles))
    assert len(seen) == len(cycles)
    return seen


def _check(dut, cycles):
    """Every output of every cycle, unless memory is undefined; ``cycles`` begin with ``_fill``."""
    seen = _run(dut, cycles)
    architectural = [[None] * dut.lanes for _ in range(dut.depth)]
    accumulating = [[None] * dut.lanes for _ in range(dut.depth)]
    compared, writing = 0, None  # what this cycle writes: chunk, lanes, both
    for n, inputs in enumerate(cycles):
        host, update = inputs["host"], inputs["update"]
        announced = n > 0 and cycles[n - 1]["update"]
        assert seen[n]["written"] == bool(announced and announced["valid"] and announced["both"])
        assert seen[n]["override"] == host["write"]
        assert not seen[n]["clearing"]
        if host["write"]:
            assert seen[n]["override_value"] == host["write_data"]

        reads = [("backward_weights", 1, accumulating[inputs["backward_chunk"]], inputs["backward_chunk"])]
        if host["read"]:
            reads.append(("read_data", HOST, architectural[host["chunk"]][host["lane"]], host["chunk"]))
        else:
            chunk = inputs["forward_chunk"]
            reads.append(("forward_weights", 2, architectural[chunk], chunk))
        for name, late, value, chunk in reads:
            defined = n > dut.depth and (writing is None or writing[0] != chunk)
            if defined and n + late < len(seen):
                assert seen[n + late][name] == value
                compared += 1
        if writing:
            chunk, lanes, both = writing
            for rows in (accumulating, architectural) if both else (accumulating,):
                for lane in lanes:
                    rows[chunk][lane] = inputs["weights"][lane]
        writing = None
        if update["valid"]:
            writing = (update["chunk"], range(dut.lanes), update["both"])
        if host["write"]:
            writing = (host["chunk"], [host["lane"]], 1)
    return compared


@pytest.mark.parametrize(("depth", "lanes"), SIZES)
def test_updates_and_the_hosts_accesses_in_any_order(depth, lanes):
    rng = random.Random(new_seed())
    dut = ModelMemories(depth=depth, lanes=lanes)
    cycles = _fill(rng, dut)
    for _ in range(250):
        what = rng.choice(["both", "one", "read", "read", "write", None])
        chunk, lane = rng.randrange(depth), rng.randrange(lanes)
        if what in ("both", "one"):
            cycles.append(_update(rng, dut, chunk, both=what == "both"))
        elif what:
            cycles.append(_access(rng, dut, chunk=chunk, lane=lane, **{what: 1}))
        else:
            cycles.append(_quiet(rng, dut))
    assert _check(dut, cycles) > 150


@pytest.mark.parametrize(("depth", "lanes"), SIZES)
def test_the_host_writes_and_reads_a_weight_a_cycle(depth, lanes):
    rng = random.Random(new_seed())
    dut = ModelMemories(depth=depth, lanes=lanes)
    places = [{"chunk": chunk, "lane": lane} for chunk in range(depth) for lane in range(lanes)]
    values = [_value(rng) for _ in places]
    writes = [
        _access(rng, dut, write=1, write_data=value, **place)
        for place, value in zip(places, values, strict=True)
    ]
    reads = [_access(rng, dut, read=1, **place) for place in places]
    cycles = [*_fill(rng, dut), *writes, _quiet(rng, dut), *reads, *_settle(rng, dut)]
    at = len(cycles) - len(reads) - HOST - 1
    seen = _run(dut, cycles)
    assert [now["read_data"] for now in seen[at + HOST : at + HOST + len(reads)]] == values


def test_a_row_is_in_memory_two_cycles_after_its_announcement():
    rng = random.Random(new_seed())
    dut = ModelMemories(depth=4, lanes=4)
    update = _update(rng, dut, 2)
    weights = _quiet(rng, dut)
    read = _quiet(rng, dut) | {"forward_chunk": 2, "backward_chunk": 2}
    cycles = [*_fill(rng, dut), *_settle(rng, dut), update, weights, read, *_settle(rng, dut)]
    at = cycles.index(update)
    seen = _run(dut, cycles)
    assert [now["written"] for now in seen[at : at + 3]] == [0, 1, 0]
    assert seen[at + 3]["backward_weights"] == seen[at + 4]["forward_weights"] == weights["weights"]


def test_an_update_of_the_accumulating_model_is_not_written_through():
    rng = random.Random(new_seed())
    dut = ModelMemories(depth=2, lanes=4)
    update = _update(rng, dut, 1, both=0)
    read = _quiet(rng, dut) | {"forward_chunk": 1, "backward_chunk": 1}
    cycles = [*_fill(rng, dut), update, _quiet(rng, dut), read, *_settle(rng, dut)]
    at = cycles.index(update)
    seen = _run(dut, cycles)
    assert not seen[at + 1]["written"]
    assert seen[at + 3]["backward_weights"] == cycles[at + 1]["weights"]
    assert seen[at + 4]["forward_weights"] == cycles[2]["weights"]  # filled: announced in cycle 1


@pytest.mark.parametrize(("depth", "chunk"), [(1, 0), (2, 1), (4, 3), *((5, chunk) for chunk in range(5))])
def test_clear_zeroes_both_memories_in_depth_and_two_cycles_and_again(depth, chunk):
    rng = random.Random(new_seed())
    dut = ModelMemories(depth=depth, lanes=4)
    round_ = []
    for _ in range(2):
        round_ += [*_fill(rng, dut), *_settle(rng, dut), _quiet(rng, dut) | {"clear": 1}]
        round_ += [_quiet(rng, dut) for _ in range(depth + 1)]
        round_ += [_quiet(rng, dut) | {"forward_chunk": chunk, "backward_chunk": chunk}]
        for lane in range(4):
            round_ += [_access(rng, dut, read=1, chunk=chunk, lane=lane)]
        round_ += [_quiet(rng, dut) | {"forward_chunk": n, "backward_chunk": n} for n in range(depth)]
        round_ += _settle(rng, dut)
    seen = _run(dut, round_)
    clears = [n for n, inputs in enumerate(round_) if inputs["clear"]]
    assert len(clears) == 2
    for at in clears:
        done = at + depth + 2
        assert [now["clearing"] for now in seen[at : at + depth + 1]] == [0] + [1] * depth
        assert not any(now["written"] for now in seen[at:done])
        assert not any(now["clearing"] or now["override"] for now in seen[done : done + 3])
        assert seen[done + 1]["backward_weights"] == seen[done + 2]["forward_weights"] == [0] * 4
        assert [now["read_data"] for now in seen[done + 1 + HOST : done + 5 + HOST]] == [0] * 4
        for n in range(done + 5, done + 5 + depth):
            assert seen[n + 1]["backward_weights"] == seen[n + 2]["forward_weights"] == [0] * 4


def test_updates_and_the_hosts_accesses_work_at_once_after_clear():
    rng = random.Random(new_seed())
    dut = ModelMemories(depth=3, lanes=4)
    cycles = [*_fill(rng, dut), _quiet(rng, dut), _quiet(rng, dut) | {"clear": 1}]
    cycles += [_quiet(rng, dut) for _ in range(dut.depth + 1)]
    at = len(cycles)
    update = _update(rng, dut, 1, both=1)
    write = _access(rng, dut, write=1, chunk=2, lane=3, write_data=-7)
    read = _quiet(rng, dut) | {"forward_chunk": 2, "backward_chunk": 1}
    cycles += [update, write, _quiet(rng, dut), read, *_settle(rng, dut)]
    seen = _run(dut, cycles)
    assert seen[at + 4]["backward_weights"] == cycles[at + 1]["weights"]
    assert seen[at + 5]["forward_weights"] == [0, 0, 0, -7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lanes": 6}, "lanes must be a power of two from 2 to 64, not 6"),
        ({"depth": 0}, "depth must be from 1 to 4096 chunks, not 0"),
    ],
)
def test_bad_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ModelMemories(**arguments)
