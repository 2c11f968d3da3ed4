"""Frames of bytes to beats of a packet stream, and back."""


def beats(frames, width, *, errors=()):
    """The beats of frames; those whose index is in ``errors`` end with the error bit (None: no such bit)."""
    step = width // 8
    for index, frame in enumerate(frames):
        for start in range(0, len(frame), step):
            part = frame[start : start + step]
            last = start + step >= len(frame)
            beat = {"data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1, "last": last}
            if errors is not None:
                beat["error"] = last and index in errors
            yield beat


def frames(payloads):
    """Whole frames, checking that only the last beat of each is partial, and that ``keep`` is a run."""
    result, frame = [], b""
    for beat in payloads:
        size = beat.shape()["keep"].width
        count = beat.keep.bit_count()
        assert beat.keep == (1 << count) - 1, f"keep {beat.keep:b}"
        assert count == size or beat.last, f"keep {beat.keep:b} inside a frame"
        frame += beat.data.to_bytes(size, "little")[:count]
        if beat.last:
            result.append(frame)
            frame = b""
    assert not frame, "the last frame has no end"
    return result
