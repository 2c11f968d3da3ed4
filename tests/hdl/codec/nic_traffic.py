"""Frames for the NIC's RTL, and what the golden model makes of them."""

import itertools

from fanin.codec.facts import Inceptionn
from fanin.codec.golden.packet import receive, transmit
from tests.fanin.codec.golden.packets import OTHER_TRAFFIC, TRANSPORTS, frame_of, gradients

MAX_FRAME = 2038  # of the components in these tests, unless one says otherwise; no whole beats
CONFIG = Inceptionn()


def payload(rng, length):
    """Values that compress well, by half (any bits: every other value is below 1), or not at all."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(length)
    if kind == 1:
        return bytes(length)
    if kind == 2:  # of 2 and more
        return bytes(byte | 0x40 * (at % 4 == 3) for at, byte in enumerate(rng.randbytes(length)))
    return gradients(length, rng.randrange(1000))


def host_frames(rng, lengths, *, max_frame=MAX_FRAME):
    """A packet of each length, of any transport, and among them other traffic of all kinds."""
    others = itertools.cycle(rng.sample(list(OTHER_TRAFFIC.values()), len(OTHER_TRAFFIC)))
    for length in lengths:
        if rng.random() < 0.4:
            yield next(others)
        yield frame_of(payload(rng, length), rng.choice(list(TRANSPORTS)))
        if rng.random() < 0.1:
            yield rng.randbytes(max_frame + rng.randrange(-2, 20))


def wire_frames(rng, lengths, *, max_frame=MAX_FRAME):
    """What a transmitter sends, other traffic, and packets with a compressed payload that is broken."""
    for frame in host_frames(rng, lengths, max_frame=max_frame):
        wire = transmit(frame, CONFIG, max_frame=max_frame)
        if wire is not None:
            yield wire
            if len(wire) > 60 and rng.random() < 0.3:
                yield broken(rng, wire)


def broken(rng, wire):
    """A frame of right form whose payload has some other bytes, or ends somewhere else."""
    body = bytearray(wire[42:])
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(min(len(body), 64))] = rng.randrange(256)
    body[0] = rng.choice([0, 0, 1, 2, body[0]])
    return frame_of(bytes(body[: rng.randrange(len(body) + 1)]))


def sent(frames, *, max_frame=MAX_FRAME, config=CONFIG):
    """What the transmitter makes of frames; those that it drops are left out."""
    made = [transmit(frame, config, max_frame=max_frame) for frame in frames]
    return [frame for frame in made if frame is not None]


def received(frames, *, errors=(), max_frame=MAX_FRAME):
    """What the receiver makes of frames; those that it drops are left out, as are those in ``errors``."""
    made = [None if k in errors else receive(frame, max_frame=max_frame) for k, frame in enumerate(frames)]
    return [frame for frame in made if frame is not None]
