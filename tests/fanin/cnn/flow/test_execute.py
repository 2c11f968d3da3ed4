"""Graphs by hand: how far actors come, when they fire, and who waits for whom."""

import numpy as np
import pytest

from fanin.cnn.flow.execute import execute
from fanin.cnn.flow.graph import EVERY_FIRING, Graph, Pattern, Selection, Source, at_first, at_last, next_token


def chain(capacity, *, firings=6, slow=1):
    """A writer and a reader that takes every ``slow`` cycles."""
    graph = Graph()
    writer, reader = graph.actor("writer", "graph", firings), graph.actor("reader", "graph", firings, slow)
    channel = graph.channel("words", "chain", capacity)
    graph.give(writer, channel, delay=3)
    graph.take(reader, channel, delay=2)
    return graph


def test_a_token_comes_after_its_delay_and_room_after_its_own():
    execution = execute(chain(2), 1, timed=True)
    assert execution.is_complete
    # The third token waits for the first one's room: taken in cycle 3, free in 5.
    assert execution.times(0).tolist() == [0, 1, 5, 6, 10, 11]
    assert execution.times(1).tolist() == [3, 4, 8, 9, 13, 14]


def test_the_slowest_actor_sets_the_pace():
    times = execute(chain(4, firings=40, slow=7), 3, timed=True).times(0)
    assert np.diff(times)[20:].tolist() == [7] * 99


def test_patterns_go_on_over_their_period():
    assert at_first(3).first(7).tolist() == [1, 1, 1, 2, 2, 2, 3]
    assert at_last(3).first(7).tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert next_token(at_last(3)).first(5).tolist() == [1, 1, 1, 2, 2]
    assert Pattern.of([2, 2, 5], 6).first(5).tolist() == [2, 2, 5, 8, 8]


def test_a_selection_counts_the_tokens_of_the_channel():
    part = Selection(5, (1, 2))
    assert part.tokens_needed(EVERY_FIRING).first(5).tolist() == [2, 3, 7, 8, 12]
    assert part.tokens_passed(EVERY_FIRING).first(5).tolist() == [2, 6, 7, 11, 12]


def join(short, long_needs):
    """Two ways to a join: one has room for ``short`` words, one gives its first when it has ``long_needs``."""
    graph = Graph()
    source, long = graph.actor("source", "graph", 12), graph.actor("long", "graph", 12)
    sink = graph.actor("sink", "graph", 12)
    copies, beside = graph.channel("outputs", "source", 1), graph.channel("the FIFO", "source → sink", short)
    window = graph.channel("results", "long", 1)
    queue = graph.actor("queue", "graph", 12)
    graph.give(source, copies)
    graph.take(queue, copies)
    graph.give(queue, beside)
    needs = Pattern.of(np.minimum(np.arange(12) + long_needs, 12), 12)
    rows, intake = graph.channel("rows", "long", 12), graph.actor("intake", "graph", 12)
    graph.take(intake, copies)
    graph.give(intake, rows)
    graph.take(long, rows, needs, EVERY_FIRING)
    graph.give(long, window)
    graph.take(sink, window)
    graph.take(sink, beside)
    return graph


@pytest.mark.parametrize("needs", [1, 2, 5, 9])
def test_a_join_stops_where_the_short_way_holds_too_little(needs):
    """One word more is on its way: the long one has taken what the short one is still offered."""
    assert execute(join(max(needs - 1, 1), needs), 2, timed=False).is_complete
    if needs > 2:
        execution = execute(join(needs - 2, needs), 2, timed=False)
        assert not execution.is_complete
        waits = execution.waits
        assert execution.graph.channels[waits[3].port.channel].name == "the FIFO"
        assert [waits[actor].blocker for actor in (3, 2, 1, 4, 0)] == [2, 1, 4, 0, 3]


def test_times_do_not_change_what_can_happen():
    for short in range(1, 9):
        graph = join(short, 6)
        assert (
            execute(graph, 3, timed=True).is_complete
            == execute(graph, 3, timed=False).is_complete
            == (short >= 5)
        )


def test_a_reader_sees_its_part_alone():
    graph = Graph()
    writer, first, second = (
        graph.actor(name, "graph", n) for name, n in (("writer", 3), ("first", 1), ("second", 2))
    )
    channel = graph.channel("words", "writer", 1)
    graph.give(writer, channel)
    graph.take(first, Source(channel, Selection(3, (0,))))
    graph.take(second, Source(channel, Selection(3, (1, 2))))
    execution = execute(graph, 4, timed=True)
    assert execution.is_complete
    assert execution.times(1).tolist() == [1, 7, 13, 19]
    assert execution.times(2).tolist() == [3, 5, 9, 11, 15, 17, 21, 23]
