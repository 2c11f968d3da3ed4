"""A standard peer: the reliable connected service as Linux' soft-RoCE (drivers/infiniband/sw/rxe) has it.

Written after its state machines, one function a state where that helps to compare: what is received is checked
as in ``rxe_recv.c``, requests are answered as in ``rxe_resp.c``, answers taken as in ``rxe_comp.c``, writes cut
into packets and sent again as in ``rxe_req.c``. Frames are built and taken apart by scapy, never by fanin.
"""

import struct
from collections import Counter, deque
from dataclasses import dataclass, field

from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

FIRST, MIDDLE, LAST, LAST_IMMEDIATE, ONLY, ONLY_IMMEDIATE = range(6, 12)
ACKNOWLEDGE = 0x11
STARTS, ENDS = (FIRST, ONLY, ONLY_IMMEDIATE), (LAST, LAST_IMMEDIATE, ONLY, ONLY_IMMEDIATE)
WITH_IMMEDIATE = (LAST_IMMEDIATE, ONLY_IMMEDIATE)
ACK, RNR, PSN_ERROR, INVALID_REQUEST, REMOTE_ACCESS = 0x1F, 0x20, 0x60, 0x61, 0x62
REFUSALS = {INVALID_REQUEST: "remote invalid request", REMOTE_ACCESS: "remote access error"}
MAX_UNACKED, PACKETS_PER_ACK = 128, 64
RNR_TIMER = 12
NUMBERS = 1 << 24


def compared(a, b):
    """Steps from b to a: numbers of 24 bits, the nearer way round."""
    return (a - b + NUMBERS // 2) % NUMBERS - NUMBERS // 2


@dataclass
class Request:
    """A write that was posted."""

    tag: int
    local: int
    length: int
    remote: int
    rkey: int
    immediate: int | None
    first: int = 0  # PSNs, once it has been sent
    last: int = 0
    sent: int = 0  # packets of it, since it was begun or begun again


@dataclass
class Queue:
    """What is posted, what came of it, and where requester and completer stand."""

    pending: deque = field(default_factory=deque)
    completions: list = field(default_factory=list)
    psn: int = 0  # of the next packet to send
    acknowledged: int = 0  # all before it
    highest: int = 0  # what has been sent lies before it
    unasked: int = 0  # packets since the last one that asked for an ACK


class RxePeer:
    """One queue pair, its memory, and its device.

    ``dropped`` counts frames by the check that they failed; ``errors`` are answers that the standard does not
    allow. ``receives`` is how many receives have been posted: each message with immediate data takes one, and
    without one it is told "not ready".
    """

    def __init__(self, *, mac, ip, queue_pair, psn, mtu, memory, rkey, vlan=None, source_port=0xD123):
        self.mac, self.ip, self.number, self.mtu = mac, ip, queue_pair, mtu
        self.memory, self.rkey, self.vlan, self.source_port = memory, rkey, vlan, source_port
        self.sending = Queue(psn=psn, acknowledged=psn, highest=psn)
        self.receives, self.arrivals, self.failed = 0, [], False
        self.dropped, self.errors, self.counted = Counter(), [], Counter()
        self._open = None  # address and bytes left of a message that has begun
        self._nak_sent, self._messages = False, 0

    def connect(self, *, mac, ip, queue_pair, psn):
        """The other end."""
        self.their_mac, self.their_ip, self.their_number = mac, ip, queue_pair
        self._expected = psn

    # what comes

    def receive(self, frame):
        """Take a frame; the frames that answer it."""
        ether, why = self._checked(frame)
        if why:
            self.dropped[why] += 1
            return []
        bth = ether[BTH]
        if bth.opcode == ACKNOWLEDGE:
            self._completer(bth.psn, ether[AETH].syndrome, ether[AETH].msn)
            return []
        body = bytes(bth.payload)
        return self._responder(bth, body[: len(body) - bth.padcount])

    def _checked(self, frame):
        """As rxe_rcv and hdr_check do it."""
        ether = Ether(frame)
        if ether.dst.replace(":", "") != self.mac.to_bytes(6, "big").hex():
            return ether, "mac"
        if (ether[Dot1Q].vlan if Dot1Q in ether else None) != self.vlan:
            return ether, "vlan"
        if BTH not in ether:
            return ether, "no BTH"
        again = Ether(frame[: (18 if self.vlan is not None else 14) + ether[IP].len])
        again[BTH].icrc = None
        sound = bytes(again)[-4:] == frame[: len(bytes(again))][-4:]
        bth = ether[BTH]
        checks = {
            "gid": ether[IP].dst == dotted(self.ip),
            "version": bth.version == 0,
            "queue pair": bth.dqpn == self.number,
            "address": ether[IP].src == dotted(self.their_ip),
            "partition": bth.pkey & 0x7FFF == 0x7FFF,
            "icrc": sound,
        }
        if len(again) < len(ether):  # padding belongs to no packet
            ether = Ether(bytes(again))
        return ether, next((why for why, holds in checks.items() if not holds), None)

    # the responder

    def _responder(self, bth, body):
        if self.failed:
            self.dropped["state"] += 1
            return []
        ahead = compared(bth.psn, self._expected)
        if ahead > 0:
            if self._nak_sent:
                return []
            self._nak_sent = True
            return [self._answer(PSN_ERROR, self._expected)]
        if ahead < 0:
            self.counted["duplicates"] += 1
            return [self._answer(ACK, (self._expected - 1) % NUMBERS)]
        self._nak_sent = False
        if bth.opcode not in range(FIRST, ONLY_IMMEDIATE + 1) or (bth.opcode in STARTS) == bool(self._open):
            return [self._refuse(INVALID_REQUEST, bth.psn)]
        if bth.opcode in WITH_IMMEDIATE and not self.receives:
            self.counted["not ready"] += 1
            return [self._answer(RNR | RNR_TIMER, bth.psn)]
        return self._execute(bth, body)

    def _execute(self, bth, body):
        """Lengths and key, then the bytes themselves."""
        if bth.opcode in STARTS:
            address, rkey, length = struct.unpack_from(">QII", body)
            body = body[16:]
            left = length
        else:
            (address, left, length), rkey = self._open, self.rkey
        immediate = None
        if bth.opcode in WITH_IMMEDIATE:
            (immediate,), body = struct.unpack_from(">I", body), body[4:]
        ends = bth.opcode in ENDS
        if len(body) > self.mtu or (not ends and len(body) != self.mtu) or (bth.opcode == LAST and not body):
            return [self._refuse(INVALID_REQUEST, bth.psn)]
        if left and (rkey != self.rkey or address + left > len(self.memory)):
            return [self._refuse(REMOTE_ACCESS, bth.psn)]
        if len(body) != min(left, self.mtu) or bth.padcount != -len(body) % 4 or ends != (left <= self.mtu):
            return [self._refuse(INVALID_REQUEST, bth.psn)]
        self.memory[address : address + len(body)] = body
        self._open = None if ends else (address + len(body), left - len(body), length)
        self._expected = (bth.psn + 1) % NUMBERS
        self._messages += ends
        if immediate is not None:
            self.receives -= 1
            self.arrivals.append((immediate, length))
        return [self._answer(ACK, bth.psn)] if bth.ackreq else []

    def _refuse(self, syndrome, psn):
        self.failed = True
        return self._answer(syndrome, psn)

    def _answer(self, syndrome, psn):
        aeth = AETH(syndrome=syndrome, msn=self._messages % NUMBERS)
        return self._frame(BTH(opcode=ACKNOWLEDGE, psn=psn) / aeth)

    # the completer

    def _completer(self, psn, syndrome, messages):
        queue = self.sending
        if compared(psn, queue.highest) >= 0:
            self.errors.append(f"an answer of {psn}, which was not sent yet")
        positive = syndrome >> 5 == 0
        if syndrome >> 5 == 3 and syndrome not in (PSN_ERROR, *REFUSALS):
            self.errors.append(f"unexpected nak {syndrome:#x}")
        if positive and syndrome != ACK:
            self.errors.append(f"credits {syndrome:#x} of a responder that limits nothing")
        news = self._complete(psn if positive else (psn - 1) % NUMBERS)
        if news and messages != len(queue.completions):
            self.errors.append(f"message {messages} where {len(queue.completions)} are complete")
        if syndrome == PSN_ERROR:
            self._retry()
        elif syndrome in REFUSALS and queue.pending:
            queue.completions.append((queue.pending.popleft().tag, REFUSALS[syndrome]))
            queue.completions += [(request.tag, "flushed") for request in queue.pending]
            queue.pending.clear()
            self.failed = True

    def _complete(self, psn):
        """All packets up to it have arrived; whether that is news."""
        queue = self.sending
        if compared(psn, queue.acknowledged) < 0 or compared(psn, queue.psn) >= 0:
            return False
        queue.acknowledged = (psn + 1) % NUMBERS
        while queue.pending and queue.pending[0].sent and compared(queue.pending[0].last, psn) <= 0:
            queue.completions.append((queue.pending.popleft().tag, "success"))
        return True

    # the requester

    def post(self, tag, local, length, *, remote, rkey, immediate=None):
        """A write of what lies in its memory."""
        self.sending.pending.append(Request(tag, local, length, remote, rkey, immediate))

    def timeout(self):
        """No answer for too long."""
        self.counted["timeouts"] += 1
        self._retry()

    def _retry(self):
        """From the oldest packet that is not acknowledged: first_psn and last_psn of a request stay."""
        queue = self.sending
        queue.psn = queue.acknowledged
        for request in queue.pending:
            if request.sent:
                request.sent = max(0, compared(queue.acknowledged, request.first))

    def send(self):
        """The packets that may be sent now."""
        queue, frames = self.sending, []
        if self.failed:
            return frames
        for request in queue.pending:
            packets = max(1, -(-request.length // self.mtu))
            while request.sent < packets:
                if compared(queue.psn, queue.acknowledged) >= MAX_UNACKED:
                    return frames
                if request.sent == 0:
                    request.first, request.last = queue.psn, (queue.psn + packets - 1) % NUMBERS
                frames.append(self._packet(request, packets))
        return frames

    def _packet(self, request, packets):
        queue, number = self.sending, request.sent
        first, last = number == 0, number == packets - 1
        opcode = {(1, 1): ONLY, (1, 0): FIRST, (0, 1): LAST, (0, 0): MIDDLE}[first, last]
        head = b""
        if first:
            head = struct.pack(">QII", request.remote, request.rkey, request.length)
        if last and request.immediate is not None:
            opcode = ONLY_IMMEDIATE if first else LAST_IMMEDIATE
            head += struct.pack(">I", request.immediate)
        at, end = number * self.mtu, min((number + 1) * self.mtu, request.length)
        body = bytes(self.memory[request.local + at : request.local + end])
        queue.unasked += 1
        asks = last or queue.unasked > PACKETS_PER_ACK
        if asks:
            queue.unasked = 0
        pad = -len(body) % 4
        bth = BTH(opcode=opcode, psn=queue.psn, padcount=pad, ackreq=asks)
        queue.psn = (queue.psn + 1) % NUMBERS
        if compared(queue.psn, queue.highest) > 0:
            queue.highest = queue.psn
        request.sent += 1
        return self._frame(bth / Raw(head + body + bytes(pad)))

    def _frame(self, bth):
        """As prepare4 makes it: don't fragment, any identification; bth_init leaves the migration bit 0."""
        self.counted["frames"] += 1
        bth.dqpn, bth.pkey = self.their_number, 0xFFFF
        ether = Ether(dst=colons(self.their_mac), src=colons(self.mac))
        if self.vlan is not None:
            ether /= Dot1Q(vlan=self.vlan, prio=3)
        ip = IP(src=dotted(self.ip), dst=dotted(self.their_ip), flags="DF", id=self.counted["frames"] & 0xFFFF)
        return bytes(ether / ip / UDP(sport=self.source_port, dport=4791, chksum=0) / bth).ljust(60, b"\0")


def colons(mac):
    """A MAC address as scapy writes it."""
    return mac.to_bytes(6, "big").hex(":")


def dotted(ip):
    """An IPv4 address as scapy writes it."""
    return ".".join(map(str, ip.to_bytes(4, "big")))
