"""Frames for the NIC's RTL, and what the golden model makes of them."""

from fanin.codec import Inceptionn
from fanin.sim.golden.codec.packet import receive, transmit
from tests.sim.golden.packets import OTHER_TRAFFIC, TRANSPORTS, frame_of, gradients

MAX_FRAME = 2048  # of the components in these tests: small queues
CONFIG = Inceptionn()


def payload(rng, length):
    """Values that compress well, badly or not at all."""
    kind = rng.randrange(4)
    return (
        rng.randbytes(length)
        if kind == 0
        else bytes(length)
        if kind == 1
        else gradients(length, rng.randrange(1000))
    )


def host_frames(rng, lengths):
    """A packet of each length, of any transport, and now and then a frame of other traffic."""
    for length in lengths:
        if rng.random() < 0.3:
            yield rng.choice(list(OTHER_TRAFFIC.values()))
        yield frame_of(payload(rng, length), rng.choice(list(TRANSPORTS)))
        if rng.random() < 0.1:
            yield rng.randbytes(MAX_FRAME + rng.randrange(1, 100))


def wire_frames(rng, lengths):
    """What a transmitter sends, other traffic, and packets with a compressed payload that is broken."""
    for frame in host_frames(rng, lengths):
        wire = transmit(frame, CONFIG, max_frame=MAX_FRAME)
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
