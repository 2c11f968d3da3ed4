"""The link's RTL does nothing that its model does not permit."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.hdl.net.link.acknowledger import Acknowledger
from fanin.hdl.net.link.receive import LinkReceiver
from fanin.hdl.net.link.window import SendWindow
from tests.hdl.net.link.bench import Wires, as_frame, faulty, job, payloads, straight
from tests.hdl.net.link.lockstep import Lockstep, OpenLinks
from tests.internals import signals_of
from tests.support import new_seed, simulate, slow

BEATS, WIDTH = 3, 256


def follow(seed, *, frames, odds=0.1, published=False, ends=True, **settings):
    """Two links over a bad network, each in lockstep with its model; the two that followed.

    ``ends``: everything arrives, at last.
    """
    rng = random.Random(seed)
    sizes = {
        "frame_beats": BEATS,
        "buffer_frames": rng.choice([2, 4]),
        "replay_frames": rng.choice([2, 4]),
        "first_sequence": rng.choice([0, 2**32 - 10]),
        "published": published,
    }
    times = {
        "timeout": rng.choice([40, 60, 90, 150]),
        "retries": 1000,
        "ack_frames": rng.randint(1, 3),
        "ack_delay": rng.choice([2, 10, 40]),
    } | settings
    print(sizes, times)
    dut = OpenLinks(2, data_width=WIDTH, **sizes)
    wires = Wires(dut, straight, rng, start=[3, 9 + rng.randrange(60)], pause=0.2, stall=0.1)
    wires.route = faulty(rng, odds, wires, frames)
    streams = [payloads(rng, [rng.randint(1, BEATS) for _ in range(frames)], WIDTH) for _ in range(2)]
    steps = [
        Lockstep(
            wires,
            k,
            [as_frame(frame, 0, WIDTH).payload for frame in streams[k]],
            sizes,
            times["ack_frames"],
            times["retries"],
        )
        for k in range(2)
    ]
    beats = [[beat for frame in stream for beat in frame] for stream in streams]

    async def users(ctx):
        """They go on as long as the links let them."""
        left = [list(of_link) for of_link in beats]
        while True:
            for link, of_link in zip(dut.link, left, strict=True):
                ctx.set(link.rx.ready, 1)
                ctx.set(link.tx.valid, bool(of_link))
                if of_link:
                    ctx.set(link.tx.payload, of_link[0])
            _, _, *ready = await ctx.tick().sample(*(link.tx.ready for link in dut.link))
            for of_link, gone in zip(left, ready, strict=True):
                del of_link[:gone]

    cycles = 200 * frames
    simulate(
        dut,
        drive={f"link[{k}].tx": beats[k] for k in range(2)} if ends else {},
        collect={f"link[{k}].rx": len(beats[1 - k]) for k in range(2)} if ends else {},
        stall=0.3,
        settings={f"link[{k}].job": job(k, **times) for k in range(2)},
        processes=[wires.process, *(step.process for step in steps), *([] if ends else [users])],
        seed=seed,
        idle=300 if ends else cycles,
        limit=cycles + 1,
    )
    return steps


EVENTS = ("repeat", "ACK", "NAK", "PROBE", "answer", "probe", "duplicate", "ahead", "dropped")


@pytest.mark.parametrize(("run", "frames"), [(0, 8), *slow(*((run, 40) for run in range(1, 12)))])
def test_a_link_does_what_its_model_permits(run, frames):
    steps = follow(new_seed() + run, frames=frames)
    for step in steps:
        assert step.events["offer"] == step.events["received"] == step.events["consume"] == frames
        assert step.events["send"] >= frames
    if frames > 20:
        assert [e for e in EVENTS if not any(step.events.get(e) for step in steps)] == []


@pytest.mark.parametrize(("odds", "run"), [(0.1, 0), *slow((0.0, 1), (0.05, 2), (0.2, 3))])
def test_so_does_one_in_published_mode(odds, run):
    """Where a frame is missing it ends; what it has taken until then the model takes, too."""
    steps = follow(new_seed() + run, frames=4 if odds else 12, odds=odds, published=True, ends=not odds)
    assert all(step.events["offer"] for step in steps)


def test_an_end_whose_peer_is_silent_gives_up_as_its_model_does():
    steps = follow(new_seed(), frames=2, odds=1.0, timeout=60, retries=3, ends=False)
    assert [step.sender.failed for step in steps] == [True] * 2


def forgets_what_has_arrived(window, m):
    arrived = signals_of(m)["arrived"]
    with m.If(window.answer.valid):
        m.d.sync += arrived.eq(0)


def frees_too_little(window, m):
    oldest = signals_of(m)["oldest"]
    with m.If(window.answer.valid & (window.answer.sequence == oldest + 2)):
        m.d.sync += oldest.eq(oldest + 1)


def reports_the_frame_before(receiver, m):
    held = signals_of(m)["held"]
    m.d.comb += receiver.arrived.eq(held)


def grants_too_much(acknowledger, m):
    with m.If(acknowledger.consumed & (acknowledger.limit[:2] == 3)):
        m.d.sync += acknowledger.limit.eq(acknowledger.limit + 2)


def forgets_duplicates(acknowledger, m):
    with m.If(acknowledger.asked):
        m.d.sync += acknowledger.ack.eq(acknowledger.ack)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (SendWindow, forgets_what_has_arrived),
        (LinkReceiver, reports_the_frame_before),
        (Acknowledger, grants_too_much),
        *slow((SendWindow, frees_too_little), (Acknowledger, forgets_duplicates)),
    ],
    ids=lambda value: value.__name__,
)
def test_hardware_that_does_something_else_is_found(monkeypatch, part, change):
    real = part.elaborate

    def other(self, platform):
        m = real(self, platform)
        change(self, m)
        return m

    monkeypatch.setattr(part, "elaborate", other)
    with pytest.raises(AssertionError) as caught:
        follow(new_seed(), frames=20, odds=0.2)
    assert caught.traceback[-1].path.name == "lockstep.py"


def test_a_frame_consumed_while_an_answer_leaves_is_answered_later():
    """The answer's room was taken from the cycle in which it was begun; the frame counts from then on."""
    dut = Acknowledger(buffer_frames=4)

    async def bench(ctx):
        ctx.set(dut.timing, {"ack_frames": 1, "ack_delay": 1000})
        assert ctx.get(dut.limit) == 4  # of the answer that is begun now
        ctx.set(dut.consumed, 1)
        await ctx.tick()
        ctx.set(dut.consumed, 0)
        ctx.set(dut.answered, 1)
        await ctx.tick()
        ctx.set(dut.answered, 0)
        assert (ctx.get(dut.ack), ctx.get(dut.limit)) == (0, 5)
        await ctx.tick()
        assert ctx.get(dut.ack)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
