"""What the tests of timelines share: a trace read back, and checked against the trace event format."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

PLACES = {"process_name": "name", "process_sort_index": "sort_index"}
PLACES |= {"thread_name": "name", "thread_sort_index": "sort_index"}


@dataclass
class Read:
    """A trace by tracks, process and thread. Times are in nanoseconds."""

    slices: dict = field(default_factory=lambda: defaultdict(list))  # name, begin, end, facts
    instants: dict = field(default_factory=lambda: defaultdict(list))  # name, time, facts
    counters: dict = field(default_factory=lambda: defaultdict(list))  # by process and name: time, value
    notes: dict = field(default_factory=dict)

    def names(self, process, thread):
        """How many slices of each name a track has, its lanes together."""
        tracks = [
            each for (one, other), each in self.slices.items() if one == process and _track(other) == thread
        ]
        return Counter(name for each in tracks for name, *_ in each)

    def faults(self, *tracks):
        """How many instants of each name some tracks of the network have; all, where none is given."""
        chosen = [each for (_, thread), each in self.instants.items() if not tracks or thread in tracks]
        return Counter(name for each in chosen for name, *_ in each)


def read(text):
    """A trace. It must be of the JSON trace event format; complete events must not overlap on a track."""
    value = json.loads(text)
    assert set(value) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert value["displayTimeUnit"] in ("ms", "ns")
    found, names = Read(notes=value["otherData"]), {}
    for event in value["traceEvents"]:
        if event["ph"] == "M":
            assert set(event["args"]) == {PLACES[event["name"]]}
            if event["name"].endswith("_name"):
                assert names.setdefault((event["pid"], event.get("tid")), event["args"]["name"])
    assert len(set(names.values())) <= len(names)
    for event in value["traceEvents"]:
        if event["ph"] != "M":
            _place(found, event, names)
    for track, each in found.slices.items():
        each.sort(key=lambda one: one[1:3])
        assert all(end <= begin for (_, _, end, _), (_, begin, _, _) in pairwise(each)), track
    return found


def _place(found, event, names):
    """Check an event, and put it where it belongs."""
    time, process = event["ts"] * 1000, names[event["pid"], None]
    assert isinstance(event["name"], str)
    assert event["name"]
    assert abs(time - round(time)) < 1e-3  # whole nanoseconds, as viewers have them
    assert time >= 0
    time = round(time)
    match event["ph"]:
        case "X":
            duration = round(event["dur"] * 1000)
            assert duration >= 0
            one = (event["name"], time, time + duration, event.get("args", {}))
            found.slices[process, names[event["pid"], event["tid"]]].append(one)
        case "i":
            assert event["s"] == "t"
            one = (event["name"], time, event.get("args", {}))
            found.instants[process, names[event["pid"], event["tid"]]].append(one)
        case "C":
            (value,) = event["args"].values()
            assert isinstance(value, int | float)
            found.counters[process, event["name"]].append((time, value))
        case other:
            raise AssertionError(f"an event of the kind {other}")


def _track(thread):
    """A track's name, of whichever of its lanes."""
    return thread.rpartition(" (")[0] if thread.endswith(")") else thread
