# amaranth: UnusedElaboratable=no
"""RetryScanner among operations that begin, are answered or not, and are sent again."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.aggregation.retry import RetryScanner
from tests.hdl.aggregation.retry_bench import LOOK, begin, run, until_offer
from tests.support import new_seed, slow


@pytest.mark.parametrize("ack", [False, True], ids=["agg", "ack"])
@pytest.mark.parametrize(("slots", "n"), [(2, 1), *slow((8, 4), (2, 2), (16, 16))])
def test_a_packet_is_offered_after_its_timeout_and_at_most_n_plus_9_cycles_later(slots, n, ack):
    """Sent at any moment of the scan, and again three times; then it fails, as punctually."""
    timeout = 40

    def story(phase):
        async def tell(around):
            await begin(around, idle=phase, result=[0] if ack else [])
            for _ in range(3):
                await until_offer(around)
                assert await around.cycle(take=True) == 0
            for _ in range(timeout + n + 60):
                await around.cycle(take=True)

        return tell

    for phase in random.Random(new_seed()).sample(range(n + 4), 5):
        around = run(story(phase), n=n, slots=slots, timeout=timeout, limit=3, cycles=500)
        first = phase + 1 + 2 * ack
        times = [first - (not ack), *(cycle for cycle, _ in around.offered), around.failed[0]]
        assert len(times) == 5
        for before, after in pairwise(times):
            assert timeout <= after - before <= timeout + n + LOOK
        assert around.sent[0][1] == 3


@pytest.mark.parametrize("limit", [0, 1, *slow(2, 65535)])
def test_a_packet_is_offered_until_the_limit_and_then_fails(limit):
    """By what was sent before: one less than the limit is offered again, the limit is not."""

    async def at_limit(slots):
        await slots.cycle(begin=True, retries=limit)
        for _ in range(300):
            await slots.cycle(take=True)

    around = run(at_limit, limit=limit)
    assert not around.offered
    assert 50 <= around.failed[0] <= 50 + 4 + LOOK
    assert around.failed == list(range(around.failed[0], 301)), "while nothing changes"

    async def below(slots):
        await slots.cycle(begin=True, retries=limit - 1)
        await until_offer(slots)
        assert not slots.failed
        await slots.cycle(take=True)
        for _ in range(200):
            await slots.cycle(take=True)

    if limit:
        around = run(below, limit=limit)
        assert len(around.offered) == 1
        assert around.failed[0] >= around.offered[0][0] + 50


def test_a_failure_is_the_overdue_packets_only():
    """Slot 1 was sent ``limit`` times but is answered in time; slot 2 is new."""

    async def story(slots):
        await slots.cycle(begin=True, retries=1)
        await slots.cycle(begin=True, retries=2)
        await slots.cycle(begin=True)
        await slots.cycle(result=1)
        for _ in range(2):
            await until_offer(slots)
            await slots.cycle(take=True)
        slots_taken = [slot for _, slot in slots.offered]
        assert sorted(slots_taken) == [0, 2]

    assert not run(story, limit=2).failed


@pytest.mark.parametrize("delay", [1, *slow(0, 9)])
@pytest.mark.parametrize("step", [3, *slow(1, 7)])
def test_each_due_packet_delays_the_scan_by_9_cycles_and_its_take(step, delay):
    """All are long overdue when the first is taken; those in between have been answered and confirmed."""
    n, due = 16, range(0, 16, step)

    async def story(slots):
        await begin(slots, count=n)
        for slot in set(range(n)) - set(due):
            await slots.cycle(result=slot)
            await slots.cycle(confirm=slot)
        for _ in range(400):
            await slots.cycle()
        slots.offered.clear()
        await slots.cycle(take=True)
        for _ in due[1:]:
            await until_offer(slots)
            for _ in range(delay):
                await slots.cycle()
            await slots.cycle(take=True)

    around = run(story, n=n, timeout=300)
    starts = [(c, s) for k, (c, s) in enumerate(around.offered) if not k or around.offered[k - 1][1] != s]
    first = due.index(starts[0][1])
    assert [slot for _, slot in starts] == [*due[first:], *due[:first]], "in the order of the scan"
    for (before, slot), (after, following) in pairwise(starts):
        waited = delay if before != starts[0][0] else 0
        assert after - before == (following - slot) % n + LOOK + waited


@pytest.mark.parametrize("due", [2, 16, *slow(1, 7)])
def test_when_many_are_due_each_waits_for_the_others(due):
    async def story(slots):
        await begin(slots, idle=3, count=due)
        for _ in range(380):
            await slots.cycle(take=True)

    around = run(story, n=16, timeout=200)
    offers = sorted((slot, cycle) for cycle, slot in around.offered)
    assert [slot for slot, _ in offers] == list(range(due)), "once each"
    for slot, cycle in offers:
        assert 200 <= cycle - (3 + slot) <= 200 + 16 + LOOK * due


def test_an_offer_stands_until_it_is_taken():
    async def story(slots):
        await begin(slots, count=3)
        begun = await until_offer(slots)
        for _ in range(100):
            await slots.cycle()
        slot = slots.offered[0][1]
        assert slots.offered == [(begun + k, slot) for k in range(100)]
        assert await slots.cycle(take=True) == slot
        assert slots.offer() is None

    run(story)


@pytest.mark.parametrize("ack", [False, True], ids=["result", "confirm"])
@pytest.mark.parametrize("early", [False, True])
def test_an_offer_is_withdrawn_2_cycles_after_its_slot_has_moved_on(ack, early):
    """The state shows an answer a cycle after it came. If ``early``, it comes before any offer."""
    answers = []

    async def story(slots):
        await begin(slots, result=[0] if ack else [])
        if early:
            while slots.overdue(0) is None:
                await slots.cycle()
        else:
            await until_offer(slots)
            await slots.cycle()
        answers.append(slots.now)
        await slots.cycle(**{"confirm" if ack else "result": 0})
        for _ in range(200):
            await slots.cycle()

    around = run(story)
    offered = [cycle for cycle, _ in around.offered]
    assert offered == ([] if early else [answers[0] - 1, answers[0], answers[0] + 1, answers[0] + 2])
    assert not around.failed


def test_a_slot_that_has_moved_on_is_not_overdue_before_it_sends():
    """An AGG long past its time, a RESULT, no ACK yet; then the ACK, by its own time."""

    async def story(slots):
        await begin(slots)
        for _ in range(30):
            await slots.cycle()
        await slots.cycle(result=0)
        for _ in range(200):
            await slots.cycle()
        assert not slots.offered
        await slots.cycle(ack=0)
        assert await until_offer(slots) >= 232 + 50
        await slots.cycle(confirm=0)
        for _ in range(2):
            await slots.cycle()
        slots.offered.clear()
        for _ in range(200):
            await slots.cycle()
        assert not slots.offered

    run(story)


def test_a_slot_that_has_begun_again_is_not_overdue_before_it_sends():
    """What was sent last is the ACK of the round before."""

    async def story(slots):
        await begin(slots, result=[0])
        await slots.cycle(confirm=0)
        for _ in range(100):
            await slots.cycle()
        await slots.cycle(begin=True, sends=False)
        for _ in range(100):
            await slots.cycle()

    for limit in (0, 9):
        around = run(story, n=1, limit=limit)
        assert not around.offered
        assert not around.failed


@pytest.mark.parametrize("retries", [0, 100], ids=["to be offered", "to fail"])
@pytest.mark.parametrize("pause", [4, *slow(3, 5)])
def test_an_answer_at_any_moment_neither_fails_nor_holds_up_another_slot(retries, pause):
    """Slot 0 is answered before, while and after it is found overdue, and its ACK follows; slot 1 is not."""
    n, timeout = 4, 30

    def story(answered):
        async def tell(slots):
            await slots.cycle(begin=True, retries=retries)
            await slots.cycle(begin=True)
            for _ in range(60):
                events = {"result": {"result": 0}, "ack": {"ack": 0}}
                due = {answered: "result", answered + pause: "ack"}.get(slots.now)
                await slots.cycle(take=True, **events.get(due, {}))

        return tell

    for answered in range(timeout - 3, timeout + n + LOOK):
        around = run(story(answered), n=n, timeout=timeout, limit=100, cycles=100)
        first = next(cycle for cycle, slot in around.offered if slot == 1)
        assert timeout <= first - 1
        assert around.failed or first - 1 <= timeout + n + 2 * LOOK


def test_a_taken_packet_is_due_again_only_after_its_own_timeout():
    """With the smallest timeouts, too."""

    async def story(slots):
        await begin(slots, count=2)
        for _ in range(200):
            await slots.cycle(take=True)

    for timeout in (1, 2, 3, 5, 8, 20):
        for n in (1, 2):
            offered = run(story if n > 1 else begin_one, n=n, timeout=timeout, cycles=300).offered
            for slot in range(min(n, 2)):
                times = [cycle for cycle, s in offered if s == slot]
                gaps = [after - before for before, after in pairwise(times)]
                assert len(gaps) > 3
                assert timeout <= min(gaps)
                assert max(gaps) <= timeout + n + 2 * LOOK


async def begin_one(slots):
    await begin(slots)
    for _ in range(200):
        await slots.cycle(take=True)


@pytest.mark.parametrize("timeout", [2**31 - 1, 2**30, 2**24, 2**16, 2**10])
def test_a_timeout_may_be_as_long_as_2_to_the_31_less_1(timeout):
    async def story(slots):
        await begin(slots, idle=100, count=4, result=[2])
        for _ in range(300):
            await slots.cycle(take=True)

    around = run(story, timeout=timeout)
    assert not around.offered
    assert not around.failed
    scans = around.scans[110:]  # all four are in flight
    assert scans == [k % 4 for k in range(scans[0], scans[0] + len(scans))]


def test_a_free_slot_is_never_offered():
    async def story(slots):
        await begin(slots, count=4)
        for slot in range(4):
            await slots.cycle(result=slot)
            await slots.cycle(ack=slot)
            await slots.cycle(confirm=slot)
        for _ in range(300):
            await slots.cycle(take=True)

    assert not run(story).offered


@pytest.mark.parametrize(("slots", "n"), [(4, 4), *slow((2, 2), (2, 1), (16, 8))])
@pytest.mark.parametrize(("timeout", "stall"), [(6, 0.7), (40, 0), *slow((6, 0), (40, 0.7))])
def test_whatever_happens_every_offer_is_right_and_none_is_forgotten(slots, n, timeout, stall):
    """Answers are lost, or come at any time; AGG goes before ACK, ACK before what is offered."""

    async def story(around):
        rng = around.rng
        acks, in_flight, idle_offers = [], [], dict.fromkeys(range(n), 0)
        confirmed_at = dict.fromkeys(range(n), -1)
        for _ in range(1200):
            while in_flight and around.confirms[in_flight[0] % n] == in_flight[0] // n + 1:
                if around.now < confirmed_at[in_flight[0] % n] + 3:
                    break
                in_flight.pop(0)
            ready = rng.random() >= stall
            does = {}
            if rng.random() < min(0.3, n / timeout):
                slot = rng.randrange(n)
                if around.awaits(slot) is False:
                    does["result"] = slot
                elif around.awaits(slot) and around.sent[slot][0]:
                    does["confirm"] = slot
                    confirmed_at[slot] = around.now
            if ready and len(in_flight) < n and rng.random() < 0.3:
                does["begin"] = True
                in_flight.append(around.begun)
            elif ready and acks and acks[0][1] <= around.now:
                does["ack"] = acks.pop(0)[0]
            waiting = around.ctx.get(around.dut.offer.valid)
            taken = await around.cycle(take=ready, **does)
            if "result" in does:
                acks.append((does["result"], around.now + 2))
            for slot in range(n):
                late = around.overdue(slot)
                idle_offers[slot] = 0 if late is None else idle_offers[slot] + (waiting and taken is None)
                assert late is None or late <= n + LOOK + LOOK * n + 1 + idle_offers[slot], "forgotten"

    around = run(story, n=n, slots=slots, timeout=timeout, limit=1000, cycles=1300)
    assert around.begun > 3 * n
    assert len(around.offered) > 3
    assert not around.failed


@pytest.mark.parametrize("slots", [1, 3, 1 << 17])
def test_bad_slots_are_named(slots):
    with pytest.raises(ValueError, match=f"slots must be a power of two from 2 to 65536, not {slots}"):
        RetryScanner(slots=slots)


def test_the_scan_passes_slots_in_flight_alone():
    """Three of 16 slots are in flight, also across the last slot; none is out of sight for long."""
    n, flight = 16, 3

    async def story(slots):
        await begin(slots, count=n - 1)
        for slot in range(n - 1):
            await slots.cycle(result=slot)
            await slots.cycle(confirm=slot)
        await begin(slots, count=flight)  # slots 15, 0, 1
        for _ in range(100):
            await slots.cycle()

    scans = run(story, n=n, timeout=2**30).scans[-60:]
    assert set(scans) == {15, 0, 1}
    assert all(set(scans[k : k + flight]) == {15, 0, 1} for k in range(60 - flight))


def test_each_retransmission_waits_twice_as_long_up_to_the_ceiling():
    async def story(slots):
        await begin(slots)
        for _ in range(5):
            await until_offer(slots)
            await slots.cycle(take=True)

    around = run(story, timeout=40, ceiling=200)
    times = [0, *(cycle for cycle, _ in around.offered)]
    for (before, after), delay in zip(pairwise(times), [40, 80, 160, 200, 200], strict=True):
        assert delay <= after - before <= delay + 4 + LOOK
