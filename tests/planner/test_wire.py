"""What a map takes on the wire, by plan and by the frames that are sent."""

import pytest

from fanin.cnn.layers.layer import Shape
from fanin.job import worker_endpoint
from fanin.planner.model.graph import wire_bits
from fanin.wire.connection import MAX_PAYLOAD_WORDS, ConnectionFrame, encode_connection
from fanin.wire.ethernet import AROUND_FRAME
from fanin.wire.link import LinkKind


@pytest.mark.parametrize(
    "shape", [(4, 4, 64), (1, 1, 10), (7, 100, 24), (3, 1, 352), (2, 1, 353), (112, 112, 32)]
)
def test_a_map_takes_what_the_frames_of_its_rows_take(shape):
    h, w, c = shape
    of_row = 0
    for first in range(0, w * c, MAX_PAYLOAD_WORDS):
        words = (0,) * min(MAX_PAYLOAD_WORDS, w * c - first)
        frame = ConnectionFrame(LinkKind.DATA, run=1, connection=1, words=words)
        sent = encode_connection(
            frame, beat_bytes=64, source=worker_endpoint(0), destination=worker_endpoint(1)
        )
        of_row += len(sent) + AROUND_FRAME
    assert wire_bits(Shape(h, w, c)) == 8 * h * of_row
