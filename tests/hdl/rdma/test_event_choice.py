"""Which event the requester carries out next."""

import pytest

from fanin.hdl.rdma.event_choice import Event, EventChoice
from fanin.rdma.facts import RdmaConfig
from tests.hdl.rdma.bench import Bench

CONFIG = RdmaConfig(address_width=32, queue_pairs=4, regions=2)
QUEUE_PAIR = {Event.CONNECT: 3, Event.ANSWER: 2, Event.POST: 1, Event.TIMEOUT: 0, Event.SEND: 3}
CYCLES = {Event.CONNECT: 0, Event.ANSWER: 0, Event.POST: 1, Event.TIMEOUT: 1, Event.SEND: 3}


def offer(ctx, dut, event):
    """The event waits, for its queue pair."""
    index = QUEUE_PAIR[event]
    if event in (Event.CONNECT, Event.ANSWER, Event.POST):
        ctx.set(getattr(dut, event.name.lower()), {"valid": 1, "index": index})
        ctx.set(dut.has_room, 1 << QUEUE_PAIR[Event.POST])
    elif event == Event.TIMEOUT:
        ctx.set(dut.expired, 1 << index)
    else:
        ctx.set(dut.sendable, 1 << index)
        ctx.set(dut.queue_free, 1)


@pytest.mark.parametrize("event", Event)
def test_an_event_is_offered_in_its_time_and_before_all_that_are_less_urgent(event):
    dut = EventChoice(config=CONFIG)

    async def main(ctx):
        for other in Event:
            if other.value > event.value:
                offer(ctx, dut, other)
        await ctx.tick().repeat(4)
        assert not ctx.get(dut.valid) or ctx.get(dut.event).value > event.value
        offer(ctx, dut, event)
        for _ in range(CYCLES[event]):
            ctx.get(dut.valid)
            assert not ctx.get(dut.valid) or ctx.get(dut.event) != event
            await ctx.tick()
        assert ctx.get(dut.valid)
        assert (ctx.get(dut.event), ctx.get(dut.index)) == (event, QUEUE_PAIR[event])

    Bench(dut, [], seed=0).run(main)


def test_a_post_without_room_and_a_packet_without_a_place_in_the_queue_wait():
    dut = EventChoice(config=CONFIG)

    async def main(ctx):
        offer(ctx, dut, Event.POST)
        ctx.set(dut.has_room, ~(1 << QUEUE_PAIR[Event.POST]) & 15)
        offer(ctx, dut, Event.SEND)
        ctx.set(dut.has_room, 0)
        ctx.set(dut.queue_free, 0)
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.valid)

    Bench(dut, [], seed=0).run(main)


def test_a_queue_pair_that_keeps_its_turn_is_the_next_to_send():
    dut = EventChoice(config=CONFIG)
    found = []

    async def main(ctx):
        ctx.set(dut.sendable, 0b1010)
        ctx.set(dut.last_sent, 1)
        ctx.set(dut.queue_free, 1)
        await ctx.tick().repeat(4)
        for valid in 0, 1, 0:
            ctx.set(dut.kept_turn, {"valid": valid, "index": 1})
            found.append((ctx.get(dut.valid), ctx.get(dut.event), ctx.get(dut.index)))
        ctx.set(dut.kept_turn, {"valid": 1, "index": 1})
        offer(ctx, dut, Event.POST)
        await ctx.tick()
        for event, free in (Event.POST, 0), (Event.SEND, 1):
            ctx.set(dut.queue_free, free)
            assert ctx.get(dut.event) == event
        offer(ctx, dut, Event.TIMEOUT)
        await ctx.tick()
        assert ctx.get(dut.event) == Event.TIMEOUT

    Bench(dut, [], seed=0).run(main)
    assert found == [(1, Event.SEND, 3), (1, Event.SEND, 1), (1, Event.SEND, 3)]
