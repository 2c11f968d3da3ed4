"""Hostile controllers of a P4Runtime switch: ``python -m fanin.evaluation.bench.hostile ADDRESS DEVICE COUNT``.

Each controller repeats one misdeed on its own connections. Requests are made once and answers are not parsed,
so that the attackers take little processor time from the switch.

The process begins at the first line of its input. It prints ``ready`` once each controller has made its first
call. When its input ends, it prints how many calls have ended, and ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
from finsy.proto import p4i, p4r

COUNT = 16  #: default number of controllers
_NICE = 10  # niceness of this process
_PRIMARY, _NOBODY = 1, 99  # election ids of a stream that this process opens, and of none
_UPDATES, _ACTIONS, _BIDS, _BABBLE = 100_000, 20_000, 1000, 1 << 16
_UNREAD_SECONDS = 1.0  # time for which answers are not read
_CALLS_PER_CONNECTION = 10
_ALL_ENTITIES = (
    p4r.Entity(register_entry=p4r.RegisterEntry()),
    p4r.Entity(counter_entry=p4r.CounterEntry()),
)


def misdeeds(device: int) -> dict[str, tuple[str, Callable[[], list[bytes]]]]:
    """Return, by name of each misdeed, the gRPC method and a function that makes the messages of a call."""

    def updates(election: int) -> list[bytes]:
        entity = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=5))
        request = p4r.WriteRequest(
            device_id=device,
            election_id=p4r.Uint128(low=election),
            updates=[p4r.Update(type=p4r.Update.INSERT, entity=entity)] * _UPDATES,
        )
        return [request.SerializeToString()]

    def config() -> list[bytes]:
        names = (p4i.Preamble(id=number, name=f"a{number}") for number in range(1, _ACTIONS))
        info = p4i.P4Info(actions=[p4i.Action(preamble=name) for name in names])
        verify = p4r.SetForwardingPipelineConfigRequest.VERIFY
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=device,
            election_id=p4r.Uint128(low=_PRIMARY),
            action=verify,
            config=p4r.ForwardingPipelineConfig(p4info=info),
        )
        return [request.SerializeToString()]

    def read_all() -> list[bytes]:
        return [p4r.ReadRequest(device_id=device, entities=_ALL_ENTITIES).SerializeToString()]

    def bids() -> list[bytes]:
        bid = p4r.MasterArbitrationUpdate(device_id=device)
        return [p4r.StreamMessageRequest(arbitration=bid).SerializeToString()] * _BIDS

    return {
        "read": ("Read", read_all),
        "unread": ("Read", read_all),
        "update": ("Write", lambda: updates(_PRIMARY)),
        "pretend": ("Write", lambda: updates(_NOBODY)),
        "configure": ("SetForwardingPipelineConfig", config),
        "bid": ("StreamChannel", bids),
        "babble": ("StreamChannel", lambda: [random.Random(1).randbytes(_BABBLE)]),
        "connect": ("Capabilities", lambda: [b""]),
    }


class _Attack(threading.Thread):
    """One hostile controller. ``ready``: set after its first call begins; ``calls``: number of ended calls."""

    def __init__(self, address: str, misdeed: str, method: str, make: Callable[[], list[bytes]]):
        super().__init__(daemon=True)
        self.ready = threading.Event()
        self.calls = 0
        self._address, self._misdeed, self._method, self._make = address, misdeed, method, make

    def run(self) -> None:
        """Repeat the misdeed, several times on each connection."""
        messages = self._make()
        while True:
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(self._address, options=options) as channel:
                call = channel.stream_stream(f"/p4.v1.P4Runtime/{self._method}")
                for _ in range(1 if self._misdeed == "connect" else _CALLS_PER_CONNECTION):
                    with contextlib.suppress(grpc.RpcError):
                        self._call_once(call, messages)
                    self.calls += 1

    def _call_once(self, call: Any, messages: Sequence[bytes]) -> None:
        """Make one call with ``messages``, and read or ignore its answers."""
        answers = call(iter(messages))
        self.ready.set()
        if self._misdeed == "unread":
            time.sleep(_UNREAD_SECONDS)
            answers.cancel()
        for _ in answers:
            pass


def _become_primary(address: str, device: int) -> Iterator[bytes]:
    """Open the stream of a primary controller, so that Writes in its name are carried out; return its answers.

    If another controller has the election id, the stream ends.
    """
    election = p4r.Uint128(low=_PRIMARY)
    bid = p4r.StreamMessageRequest(
        arbitration=p4r.MasterArbitrationUpdate(device_id=device, election_id=election)
    )
    call = grpc.insecure_channel(address).stream_stream("/p4.v1.P4Runtime/StreamChannel")
    answers: Iterator[bytes] = call(
        itertools.chain([bid.SerializeToString()], iter(threading.Event().wait, None))
    )
    with contextlib.suppress(grpc.RpcError):
        next(answers)
    return answers


def main(argv: Sequence[str]) -> None:
    """Attack until the input ends."""
    os.nice(_NICE)
    sys.stdin.readline()
    address, device, count = argv[0], int(argv[1]), int(argv[2])
    primary = _become_primary(address, device)
    misdeed_list = list(misdeeds(device).items())
    attacks = [
        _Attack(address, name, *method_and_messages)
        for name, method_and_messages in (misdeed_list[n % len(misdeed_list)] for n in range(count))
    ]
    for attack in attacks:
        attack.start()
    for attack in attacks:
        attack.ready.wait()
    print("ready", flush=True)
    sys.stdin.read()
    print(sum(attack.calls for attack in attacks), flush=True)
    del primary
    os._exit(0)  # calls under way are cut off


if __name__ == "__main__":
    main(sys.argv[1:])
