"""What induction needs of the stream cores inside a component that is proved."""


def of_fifo(proof, fifo, signals):
    """A StreamFIFO's flags follow its level; ``signals`` are its own, of ``proof.parts``."""
    proof.check(fifo.level <= fifo.depth)
    proof.check(signals["valid"] == (fifo.level != 0))
    proof.check(signals["has_stored"] == (fifo.level > 1))
    proof.check(signals["writable"] == (fifo.level != fifo.depth))


def of_slice(proof, part, signals, holds):
    """All payloads in a RegisterSlice have a property, and the second register is used after the first."""
    proof.check(~signals["full"] | part.o.valid)
    proof.check(~part.o.valid | holds(part.o.payload))
    proof.check(~signals["full"] | holds(part.o.payload.shape()(signals["skid"])))
