"""The ring's link as a model: exactly once, in order, whatever the network does; an end when it stops."""

import random

import pytest

from fanin.golden.link import SEQUENCES, Answer, Receiver, Sender, distance
from fanin.wire.link import LinkKind
from tests.support import new_seed

PROBE = "probe"


class Node:
    """A sender, a receiver and what the network carries between them: messages that are sent and not lost."""

    def __init__(
        self, payloads, *, replay_frames, buffer_frames, ack_frames=1, retries=10**6, first=0, rng=None
    ):
        self.payloads = payloads
        self.rng = rng or random.Random(0)
        self.sender = Sender(replay_frames, retries, first, first, first)
        self.receiver = Receiver(buffer_frames, ack_frames, first)
        self.offered = 0
        self.delivered = []
        self.network = []

    def act(self, action, message=None):
        """One event; ``deliver`` hands ``message`` over."""
        sender, receiver = self.sender, self.receiver
        if action == "offer" and self.offered < len(self.payloads):
            self.offered += sender.offer(self.payloads[self.offered])
        elif action == "send" and (frame := sender.send()):
            self.network.append(frame)
        elif action == "answer" and (answer := receiver.answer()):
            self.network.append(answer)
        elif action == "probe" and sender.probe() is not None:
            self.network.append(PROBE)
        elif action == "timeout":
            sender.timeout()
        elif action == "repeat" and (missing := sender.missing()):
            self.network.append(sender.send_again(self.rng.choice(missing)))
        elif action == "advance":
            receiver.advance()
        elif action == "delay":
            receiver.delay()
        elif action == "consume" and receiver.frames:
            self.delivered.append(receiver.consume())
        elif action == "deliver":
            self._deliver(message)
        assert self.delivered == self.payloads[: len(self.delivered)]

    def _deliver(self, message):
        if message == PROBE:
            self.receiver.probe()
        elif isinstance(message, tuple):
            self.receiver.receive(*message)
        else:
            self.sender.answer(message)

    def finish(self):
        """A network without faults, and everybody's turn in turn; whether everything arrives in the end."""
        self.network.clear()
        for _ in range(20 * (len(self.payloads) + 2)):
            for action in (
                "offer",
                "send",
                "answer",
                "consume",
                "delay",
                "timeout",
                "probe",
                "repeat",
                "advance",
            ):
                self.act(action)
                while self.network:
                    self.act("deliver", self.network.pop(0))
        return self.delivered == self.payloads and not self.sender.frames


@pytest.mark.parametrize("first", [0, SEQUENCES - 5])
@pytest.mark.parametrize("seed", range(10))
def test_a_random_network_delivers_everything_once_and_in_order(seed, first):
    rng = random.Random(seed + new_seed())
    payloads = [bytes([k]) for k in range(60)]
    sizes = {name: rng.randint(2, 6) for name in ("replay_frames", "buffer_frames")}
    node = Node(payloads, ack_frames=rng.randint(1, 4), first=first, rng=rng, **sizes)
    actions = ["offer", "send", "send", "answer", "consume", "timeout", "probe", "delay", "repeat", "advance"]
    actions += ["deliver"] * 4
    for _ in range(1500):
        action = rng.choice(actions)
        if action != "deliver":
            node.act(action)
        elif node.network:  # any message, in any order; some are lost, some come again
            message = node.network[index := rng.randrange(min(4, len(node.network)))]
            if rng.random() < 0.8:
                node.act("deliver", message)
            if rng.random() < 0.8:
                del node.network[index]
    assert node.finish()


def test_a_silent_peer_fails_the_sender_and_any_answer_does_not():
    sender, receiver = Sender(replay_frames=4, retries=3), Receiver(buffer_frames=1)
    assert sender.offer(b"x")
    for _ in range(10):
        sender.timeout()
        assert sender.probe() == 0  # no credit: asks
        receiver.probe()
        sender.answer(receiver.answer())
    assert not sender.give_up()
    for _ in range(3):
        assert not sender.give_up()
        sender.timeout()
    assert sender.give_up()
    assert sender.failed
    assert sender.send() is None
    assert not sender.offer(b"y")


def test_an_answer_to_what_was_never_sent_grants_room_and_frees_nothing():
    sender = Sender(replay_frames=4, retries=3)
    assert sender.offer(b"x")
    sender.timeout()
    sender.answer(Answer(LinkKind.NAK, sequence=1, count=1))
    assert (sender.timeouts, sender.limit, list(sender.frames)) == (0, 1, [b"x"])
    assert sender.send() == (0, b"x")


def test_a_frame_after_a_gap_is_kept_reported_and_delivered_in_order():
    """One NAK for each gap; bits of a report count from the frame after the missing one."""
    receiver = Receiver(buffer_frames=8)
    receiver.answer()
    assert receiver.receive(2, b"c")
    assert receiver.answer() == Answer(LinkKind.NAK, 0, 8, 0b10)
    assert receiver.receive(3, b"d")
    assert receiver.answer() == Answer(LinkKind.ACK, 0, 8, 0b110)
    assert receiver.receive(6, b"g")
    assert receiver.answer() == Answer(LinkKind.NAK, 0, 8, 0b100110)
    assert not receiver.receive(3, b"d")
    assert receiver.answer().kind is LinkKind.ACK
    assert receiver.receive(0, b"a")
    assert receiver.advance()
    assert not receiver.advance()
    assert receiver.answer() == Answer(LinkKind.ACK, 1, 8, 0b10011)
    assert receiver.receive(1, b"b")
    while receiver.advance():
        pass
    assert [receiver.consume() for _ in range(4)] == [b"a", b"b", b"c", b"d"]
    assert receiver.answer() == Answer(LinkKind.ACK, 4, 12, 0b10)


def test_only_frames_that_are_missing_are_sent_again():
    sender = Sender(replay_frames=8, retries=3)
    sender.answer(Answer(LinkKind.ACK, 0, 8))
    for k in range(6):
        assert sender.offer(bytes([k]))
        assert sender.missing() == list(range(k))
        sender.send()
    sender.answer(Answer(LinkKind.NAK, 1, 8, 0b0101))  # has 2 and 4
    assert sender.missing() == [1, 3, 5]
    assert sender.send_again(3) == (3, b"\3")
    assert sender.send_again(2) is None
    assert sender.send_again(0) is None
    assert sender.send_again(6) is None
    sender.answer(Answer(LinkKind.ACK, 1, 8, 0b0001))  # overtaken by the one before
    assert sender.missing() == [1, 3, 5]
    sender.answer(Answer(LinkKind.ACK, 3, 8, 0b0001))
    assert sender.missing() == [3, 5]


def test_a_report_reaches_32_frames_and_no_frame_beyond_is_sent_again():
    sender, receiver = Sender(replay_frames=64, retries=3), Receiver(buffer_frames=64)
    sender.answer(receiver.answer())
    for k in range(40):
        sender.offer(bytes([k]))
        sent = sender.send()
        if k not in (0, 33, 36):
            receiver.receive(*sent)
    sender.answer(answer := receiver.answer())
    assert answer.arrived == 0xFFFFFFFF
    assert sender.missing() == [0]
    receiver.receive(*sender.send_again(0))
    while receiver.advance():
        pass
    sender.answer(receiver.answer())
    assert sender.missing() == [33, 36]


@pytest.mark.parametrize("seed", range(5))
def test_published_mode_ends_with_the_first_loss_and_never_sends_again(seed):
    """A network in order loses one frame, maybe the last; what was taken is what came before it."""
    rng = random.Random(seed + new_seed())
    payloads = [bytes([k]) for k in range(20)]
    sender = Sender(replay_frames=4, retries=10**6, published=True)
    receiver = Receiver(buffer_frames=3, published=True)
    missing, offered, sent, taken = rng.randrange(20), 0, [], []
    for _ in range(500):
        if offered < len(payloads):
            offered += sender.offer(payloads[offered])
        while frame := sender.send():
            sent.append(frame[0])
            if frame[0] != missing:
                receiver.receive(*frame)
        sender.timeout()
        receiver.probe(sender.probe())
        if receiver.lost:
            break
        if receiver.frames and rng.random() < 0.5:
            taken.append(receiver.consume())
        if answer := receiver.answer():
            sender.answer(answer)
    assert receiver.lost
    assert taken + list(receiver.frames) == payloads[:missing]
    assert sent == list(range(len(sent)))


def test_an_answer_may_leave_before_the_hardware_has_heard_of_the_last_frame():
    """An ACK in place of a NAK reports the same; a NAK when the missing frame has just come."""
    receiver = Receiver(buffer_frames=8)
    receiver.receive(1, b"b")
    assert receiver.answer(LinkKind.ACK) == Answer(LinkKind.ACK, 0, 8, 1)
    assert receiver.answer() is None
    receiver.receive(3, b"d")
    receiver.receive(0, b"a")
    receiver.advance()
    assert receiver.answer(LinkKind.NAK) == Answer(LinkKind.NAK, 1, 8, 0b10)
    assert receiver.answer() is None


def test_distances_wrap():
    assert distance(SEQUENCES - 1, 1) == 2
    assert distance(1, SEQUENCES - 1) == -2
