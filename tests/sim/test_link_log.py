"""The log of links: what it keeps of frames, that it is bounded, and that it agrees with what links count."""

from fanin.link import LinkConfig
from fanin.sim import link_log
from fanin.sim.link_log import HEAD_BYTES, LinkLog, LinkLogWriter, LoggedFrame, read_link_log
from fanin.sim.network import LinkFaults, Network
from fanin.sim.switch.forward import Forwarder

MACS = (0x020000000001, 0x020000000002)
NAMED = {"dropped": LinkFaults.DROPPED, "reordered": LinkFaults.REORDERED, "duplicated": LinkFaults.DUPLICATED}
FAULTS = ("drop", "duplicate", "reorder", "corrupt")


def frame(number, source=0, size=90):
    """From one of the two nodes to the other."""
    addresses = MACS[1 - source].to_bytes(6, "big") + MACS[source].to_bytes(6, "big")
    return (addresses + b"\x88\xb5" + number.to_bytes(4, "big")).ljust(size, b"\1")


def carried(path, link, frames=400, seed=3):
    """Send frames both ways, by a logged network; the arrivals at nodes, and the network."""
    log = LinkLogWriter(path) if path else None
    network = Network(switch=Forwarder.of(MACS), ports=2, link=link, seed=seed, log=log)
    for number in range(frames):
        network.send(number % 2, frame(number, number % 2), number * 10_000)
    received = network.advance(10**12)
    if log:
        log.close()
    return received, network


def logged(number, fate=0, corrupted=0):
    """A frame on the way down to node 1, and what a link tells of it."""
    told = (1, False, 1000 * number, 1000 * number + 500, frame(number), fate, corrupted)
    fates = {name: each in LinkFaults(fate) for name, each in NAMED.items()}
    return LoggedFrame(*told[:4], 90, frame(number)[:HEAD_BYTES], corrupted=corrupted, **fates), told


def written(path, told):
    writer = LinkLogWriter(path)
    for each in told:
        writer.write(*each)
    return writer


def test_what_a_link_did_to_frames_is_what_it_counts(tmp_path):
    """All at once: a frame may come late and twice, and both copies damaged."""
    _, network = carried(tmp_path / "log", LinkConfig(**dict.fromkeys(FAULTS, 0.3)))
    log = read_link_log(tmp_path / "log")
    assert log.left_out == 0
    for port in (0, 1):
        for up, link in (True, network.up[port]), (False, network.down[port]):
            own = [one for one in log.frames if (one.port, one.up) == (port, up)]
            counted = link.statistics
            assert (len(own), sum(one.size for one in own)) == (counted.frames, counted.bytes)
            for counter in ("dropped", "duplicated", "reordered", "corrupted"):
                assert sum(getattr(one, counter) for one in own) == getattr(counted, counter) > 0
            assert {one.source for one in own} == {MACS[port if up else 1 - port]}
            assert {one.destination for one in own} == {MACS[1 - port if up else port]}


def test_the_log_changes_nothing(tmp_path):
    bad = LinkConfig(**dict.fromkeys(FAULTS, 0.1))
    assert carried(tmp_path / "log", bad)[0] == carried(None, bad)[0] != []


def test_a_frame_is_on_the_wire_when_its_bits_are(tmp_path):
    carried(tmp_path / "log", LinkConfig(delay_ns=100, gbps=10), frames=3)
    first, second, third, *_ = (one for one in read_link_log(tmp_path / "log").frames if one.up)
    assert (first.begin, first.end) == (0, (8 + 90 + 4) * 800)
    assert (second.begin, second.end - second.begin) == (10_000, 102 * 800)  # on the other node's link
    assert third.begin == first.end + 12 * 800  # it waited for the first one's gap


def test_the_first_frames_are_kept_and_the_others_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(link_log, "MOST_FRAMES", 8)
    frames, told = zip(*(logged(n, LinkFaults(n % 8), n % 3) for n in range(11)), strict=True)
    written(tmp_path / "log", told).close()
    first = read_link_log(tmp_path / "log")
    assert first == LinkLog(frames[:8], 3)
    moved = first.shifted(10**6)
    assert [one.begin - 10**6 for one in moved.frames] == [one.begin for one in frames[:8]]
    assert [one.end - one.begin for one in moved.frames] == [500] * 8
    assert moved.left_out == 3


def test_of_a_long_frame_the_beginning_is_kept(tmp_path):
    written(tmp_path / "log", [(0, True, 0, 10, frame(1, size=1500), 0, 0)]).close()
    (found,) = read_link_log(tmp_path / "log").frames
    assert (found.size, found.head) == (1500, frame(1, size=1500)[:HEAD_BYTES])


def test_a_log_that_was_not_closed_has_what_had_been_written(tmp_path):
    path = tmp_path / "log"
    frames, told = zip(*map(logged, range(4)), strict=True)
    written(path, told).close()
    whole = path.read_bytes()
    path.write_bytes(bytes(8) + whole[8:-30])  # the number of frames comes last
    assert read_link_log(path) == LinkLog(frames[:3])
    path.write_bytes(b"")
    assert read_link_log(path) == read_link_log(tmp_path / "absent") == LinkLog()
