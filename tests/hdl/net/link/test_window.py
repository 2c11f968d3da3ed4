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
    oldest, first_unsent, limit, arrived = (state[n] for n in ("oldest", "first_unsent", "limit", "arrived"))
    newest = Signal(32, init=2**32 - 2)  # number after the last frame kept

    with proof.m.If(window.taken):
        proof.m.d.sync += newest.eq(newest + 1)
    proof.assume(~window.taken | window.can_take)
    proof.assume(~window.sent | window.offer.valid)

    def distance(one, other):
        value = Signal(signed(32))
        proof.m.d.comb += value.eq(other - one)
        return value

    kept, unsent, sent = (
        distance(oldest, newest),
        distance(first_unsent, newest),
        distance(oldest, first_unsent),
    )
    for frames in kept, unsent, sent:
        proof.check((frames >= 0) & (frames <= FRAMES))
    proof.check(window.idle == (kept == 0))
    proof.check(~window.can_take | (kept < FRAMES))
    proof.check(state["kept_end"] == newest[: len(state["kept_end"])])
    # A new frame on offer: the first unsent one, kept, and the next node has room for it.
    offer = window.offer
    is_new = offer.valid & ~window.sent_before
    proof.check(~is_new | (offer.sequence == first_unsent))
    proof.check(~is_new | (unsent > 0))
    proof.check(~is_new | (first_unsent - limit)[31])
    # A frame that is sent again: in flight, and not reported as arrived.
    place = distance(oldest, offer.sequence)
    is_old = offer.valid & window.sent_before
    proof.check(~is_old | ((place >= 0) & (place < sent)))
    proof.check(~is_old | (place == 0) | ~arrived.bit_select((place - 1)[:5], 1))
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
