# amaranth: UnusedElaboratable=no
"""Proofs of a link's send window: for ever, whatever is taken, sent and answered, in any order."""

import pytest
from amaranth import Signal, signed

from fanin.hdl.net.link.window import SendWindow
from fanin.wire.ring import RING_LINK
from tests.formal import Proof

pytestmark = pytest.mark.formal
FRAMES = 4  # kept at most


def test_the_window_offers_only_frames_that_are_kept_and_keeps_no_more_than_fit(tmp_path):
    """Induction over sequence numbers modulo 2^32; ``first_sequence`` does not matter to it."""
    proof = Proof(SendWindow(form=RING_LINK, frame_beats=2, replay_frames=FRAMES, first_sequence=2**32 - 2))
    window, state = proof.component, proof.internal
    oldest, next_to_send, first_unsent, limit = (
        state[name] for name in ("oldest", "next_to_send", "first_unsent", "limit")
    )
    newest = Signal(32, init=2**32 - 2)  # behind it: nothing is kept yet

    with proof.m.If(window.taken):
        proof.m.d.sync += newest.eq(newest + 1)
    proof.assume(~window.taken | window.can_take)
    proof.assume(~window.sent | window.offer.valid)

    def distance(one, other):
        value = Signal(signed(32))
        proof.m.d.comb += value.eq(other - one)
        return value

    kept, unsent, to_repeat = (
        distance(oldest, newest),
        distance(first_unsent, newest),
        distance(next_to_send, first_unsent),
    )
    gone_back = distance(oldest, next_to_send)
    for frames in kept, unsent, to_repeat, gone_back:
        proof.check((frames >= 0) & (frames <= FRAMES))
    proof.check(window.idle == (kept == 0))
    proof.check(~window.can_take | (kept < FRAMES))
    # what is on offer: the next frame, kept, that the node after this one has room for, and whether it was sent
    offer = window.offer
    proof.check(~offer.valid | (offer.sequence == next_to_send))
    proof.check(~offer.valid | (distance(next_to_send, newest) > 0))
    proof.check(~offer.valid | ((next_to_send - limit)[31]))
    proof.check(~offer.valid | (window.sent_before == (to_repeat != 0)))
    proof.check(state["kept_end"] == newest[: len(state["kept_end"])])
    proof.prove(tmp_path, depth=2)


def test_a_frame_that_was_acknowledged_is_never_offered_again(tmp_path):
    """The oldest frame kept moves on, never back, and never past one that was not sent."""
    proof = Proof(SendWindow(form=RING_LINK, frame_beats=2, replay_frames=FRAMES))
    window, state = proof.component, proof.internal
    oldest, first_unsent = state["oldest"], state["first_unsent"]
    before, sent = proof.past(oldest), proof.past(first_unsent)
    started = Signal()
    proof.m.d.sync += started.eq(1)
    moved, allowed = Signal(32), Signal(32)
    proof.m.d.comb += [moved.eq(oldest - before), allowed.eq(sent - before)]
    proof.assume(~window.sent | window.offer.valid)
    proof.check(~started | (moved <= allowed))
    proof.prove(tmp_path, depth=2)
