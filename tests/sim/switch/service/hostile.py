"""Hostile controllers, in a process of their own: ``python -m tests.sim.switch.service.hostile ADDRESS COUNT``.

Each has connections of its own and repeats one misdeed. Requests are made once and answers are not parsed, so
that the attackers need little of the machine that they share with the switch. The process ends with its input.
"""

import contextlib
import os
import random
import sys
import threading
import time

import grpc
from finsy.proto import p4r

from tests.sim.switch.service.client import DEVICE, Set, wide

PRIMARY, NOBODY = 1, 99  # election ids
UNREAD = 1.0  # seconds for which answers are not read


def _updates(election):
    update = p4r.Update(type=1, entity={"counter_entry": {"counter_id": 5}})
    return p4r.WriteRequest(device_id=DEVICE, election_id=wide(election), updates=[update] * 100_000)


def _config():
    actions = [{"preamble": {"id": number, "name": f"a{number}"}} for number in range(1, 20_000)]
    config = {"p4info": {"actions": actions}}
    return Set(device_id=DEVICE, election_id=wide(PRIMARY), action=Set.VERIFY, config=config)


def _bids():
    return [p4r.StreamMessageRequest(arbitration={"device_id": DEVICE}).SerializeToString()] * 1000


_ALL = p4r.ReadRequest(device_id=DEVICE, entities=[{"register_entry": {}}, {"counter_entry": {}}])
#: By misdeed: method and messages of a call.
MISDEEDS = {
    "read": ("Read", lambda: [_ALL.SerializeToString()]),
    "unread": ("Read", lambda: [_ALL.SerializeToString()]),
    "update": ("Write", lambda: [_updates(PRIMARY).SerializeToString()]),
    "pretend": ("Write", lambda: [_updates(NOBODY).SerializeToString()]),
    "configure": ("SetForwardingPipelineConfig", lambda: [_config().SerializeToString()]),
    "bid": ("StreamChannel", _bids),
    "babble": ("StreamChannel", lambda: [random.Random(1).randbytes(1 << 16)]),
    "connect": ("Capabilities", lambda: [b""]),
}


def attack(address, misdeed):
    """Repeat a misdeed, ten times on each connection."""
    method, made = MISDEEDS[misdeed]
    messages = made()
    while True:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address, options=options) as channel:
            call = channel.stream_stream(f"/p4.v1.P4Runtime/{method}")
            for _ in range(1 if misdeed == "connect" else 10):
                with contextlib.suppress(grpc.RpcError):
                    answers = call(iter(messages))
                    if misdeed == "unread":
                        time.sleep(UNREAD)
                        answers.cancel()
                    for _ in answers:
                        pass


def main():
    os.nice(10)
    address, count = sys.argv[1], int(sys.argv[2])
    for number in range(count):
        misdeed = list(MISDEEDS)[number % len(MISDEEDS)]
        threading.Thread(target=attack, args=(address, misdeed), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
