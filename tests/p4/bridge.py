"""PTF's data plane in front of a simulated switch: the emitted PTF tests run without an interface."""

import importlib.util
import warnings
from collections import deque
from pathlib import Path
from types import ModuleType

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # in how PTF imports scapy
    import ptf
    import ptf.dataplane
    import ptf.testutils

from fanin.p4.deployment import load_deployment


class Bridge(ptf.dataplane.DataPlane):
    """Frames that a test sends go through ``switch`` at once; what it causes waits for the test's polls."""

    def __init__(self, switch):  # the base class would start a thread that reads interfaces
        self.switch = switch
        self.waiting = deque()

    def __del__(self):
        pass

    def send(self, device, port, frame):
        self.waiting += [(to, out) for to, out, _ in self.switch.inject(port, frame, 0)]
        return len(frame)

    def flush(self):
        self.waiting.clear()

    def poll(self, device_number=0, port_number=None, timeout=None, exp_pkt=None, filters=()):
        for place, (port, frame) in enumerate(self.waiting):
            if port_number in (None, port) and exp_pkt in (None, frame):
                del self.waiting[place]
                return self.PollSuccess(device_number, port, frame, exp_pkt, 0.0)
        return self.PollFailure(exp_pkt, [frame for _, frame in self.waiting], len(self.waiting))


def load_tests(folder: Path) -> ModuleType:
    """The emitted PTF tests of ``folder``."""
    path = folder / "ptf" / "aggregation_test.py"
    spec = importlib.util.spec_from_file_location("aggregation_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_tests(folder: Path, switch) -> dict[str, str | None]:
    """Run all of them; per test, what is wrong."""
    for job in load_deployment(folder / "job.json").jobs:
        switch.add_job(job)
    ptf.dataplane_instance = Bridge(switch)
    ptf.config.update(relax=False, log_dir=None)
    ptf.open_logfile = lambda name: None
    module = load_tests(folder)
    outcomes = {}
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, module.Aggregation) and kind is not module.Aggregation:
            test = kind("runTest")
            try:
                test.setUp()
                test.runTest()
                outcomes[name] = None
            except AssertionError as error:
                outcomes[name] = str(error)
    return outcomes
