"""The loop that carries frames between interfaces and the embedded switch.

One thread owns the switch. It takes the waiting frames of each interface in turn, at most a batch. Between
batches it carries out requests of controllers in slices. So no packet sees half an update, and no request stops
frames for longer than a slice.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import selectors
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from fanin.host.ethernet import Interface, InterfaceLost
from fanin.sim.switch.embedded import Refused


class Forwarder(Protocol):
    """A device between the ports: a switch, or any other source of frames for a frame."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return the frames caused by a frame that enters at ``port``, as (port, frame). May raise Refused."""


class Control(Protocol):
    """Control plane of a switch, as the forwarding loop uses it."""

    def fileno(self) -> int:
        """Return the number of the file at which requests arrive."""

    @property
    def blocked(self) -> bool:
        """True while its file has no room for its messages."""

    @property
    def ready(self) -> bool:
        """True if it has work that does not depend on its file."""

    def work(self, end: float) -> None:
        """Work until ``end`` (seconds of the monotonic clock), or until no work is left."""

    def check_clocks(self) -> None:
        """Check timeouts; called twice a second."""

    def finish(self) -> None:
        """Clean up after the end of the loop."""


T = TypeVar("T")
F = TypeVar("F", bound=Forwarder)
SLICE = 0.001  #: seconds of control between two visits to the ports
SHARE = 0.06  #: share of the processor time for control while frames wait
_REQUEST_TIMEOUT = 20.0  # seconds that a request to the switch may wait
_MAX_REASONS = 100  # maximum reported reasons; some reasons hold numbers of a frame
_TICK = 0.5  # seconds between checks of the clock while nothing arrives


@dataclass
class PortCounters:
    """Counters of one port since it was opened."""

    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    refused: int = 0  #: received frames whose result is undefined
    overrun: int = 0  #: frames for which the kernel's queue had no room
    lost: int = 0  #: frames that the kernel delivers in a form that no wire carries
    unsent: int = 0  #: frames that the interface did not take


class Forwarding(Generic[F]):
    """Loop that carries frames between ``ports`` and ``switch``.

    - ``cpu``: number of the CPU port, if any; frames that leave there go to ``controller``.
    - ``report``: called once with each reason for a refused frame and each unexpected exception, in one line.

    An unexpected exception, of a frame or of a function that the loop calls, does not end the loop.
    InterfaceLost ends it.
    """

    def __init__(
        self,
        switch: F,
        ports: Mapping[int, Interface],
        *,
        cpu: int | None = None,
        report: Callable[[str], None] = print,
    ):
        self.switch = switch
        self.counters = {port: PortCounters() for port in ports}
        #: Returns the remedy for a refused frame, with which its report ends; empty if there is none.
        self.remedy: Callable[[Refused], str] = lambda error: ""
        self.controller: Callable[[bytes], None] = lambda frame: None
        self.to_controller = self.from_controller = self.refused_from_controller = 0  #: frames
        self.no_controller = 0  #: frames to a controller that is absent or does not read
        self.unconnected = 0  #: frames to ports without an interface
        self.failed = 0  #: frames and requests that caused an unexpected exception
        self.timer: Callable[[], float] = lambda: math.inf  #: called when it is due; returns its next time
        self.control_seconds = self.longest_visit = 0.0  #: processor seconds of visits to control: all, longest
        self._control: Control | None = None
        self._control_due = 0.0  # the thread's processor time at control's next turn while frames wait
        self._blocked = False  # whether the file of control takes no more
        self._on_ports_down: Callable[[frozenset[int]], None] | None = None
        self._due = math.inf
        self._down: frozenset[int] | None = None
        self._ports = dict(ports)
        self.cpu = cpu
        self._report = report
        self._reported: set[str] = set()
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        for port, interface in ports.items():
            self._selector.register(interface, selectors.EVENT_READ, port)
        self._running = self._stopped = False

    def run_in_loop(self, action: Callable[[], T]) -> T:
        """Run ``action`` in the loop's thread between two frames; return its result or raise its exception."""
        future: Future[T] = Future()
        if self._stopped:
            raise CancelledError
        self._requests.put((action, future))
        self._wake_loop()
        if self._stopped:  # the loop may have looked for the last time
            future.cancel()
        try:
            return future.result(_REQUEST_TIMEOUT)
        except FutureTimeout:
            if future.cancel():  # so that it does not run after the caller has given up
                raise
            return future.result()  # it has begun: the caller needs its result

    @property
    def running(self) -> bool:
        """True while the loop runs."""
        return self._running and not self._stopped

    def attach(self, control: Control) -> None:
        """Let ``control`` work between batches of frames, from now on."""
        self._control, self._blocked = control, False
        self._selector.register(control, selectors.EVENT_READ, control)

    def detach(self, control: Control) -> None:
        """Remove ``control``; call before its file is closed."""
        if self._control is control:
            self._selector.unregister(control)
            self._control = None

    def stop(self) -> None:
        """Make :meth:`run` return soon; may be called from a signal's handler."""
        self._stopped = True
        self._wake_loop()

    def wake(self, due: float) -> None:
        """Make the loop call :attr:`timer` at ``due`` (monotonic clock) or earlier; only for its own thread."""
        self._due = min(self._due, due)

    def fail(self, subject: str, error: Exception) -> str:
        """Count and report an unexpected exception; return its text, one line that begins with ``subject``."""
        self.failed += 1
        frames = traceback.extract_tb(error.__traceback__)
        location = f", {os.path.basename(frames[-1].filename)} line {frames[-1].lineno}" if frames else ""
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"{subject}: internal error ({cause}{location})"
        self._report_once(text)
        return text

    def watch_ports(self, watch: Callable[[frozenset[int]], None]) -> None:
        """Call ``watch`` with the ports that are down, now and at each change; only for the loop's thread."""
        self._on_ports_down, self._down = watch, None
        self._check_ports()

    def run(self, tick: Callable[[], None]) -> None:
        """Forward until :meth:`stop`. Raises InterfaceLost."""
        due = now = 0.0
        self._running = True
        try:
            while not self._stopped:
                has_frames, has_messages = self._visit_ports(now)
                now = time.monotonic()
                if not has_frames or time.thread_time() >= self._control_due:
                    self._visit_control(now, has_messages=has_messages)
                if now >= due:
                    self._read_counters()
                    tick()
                    due = now + _TICK
        finally:
            self._stopped = True
            if self._control is not None:
                self._control.finish()
            while not self._requests.empty():
                self._requests.get()[1].cancel()
            with contextlib.suppress(InterfaceLost):  # its counters are lost with it
                self._read_counters()

    def close(self) -> None:
        """Close the files that the loop polls; the interfaces stay open."""
        self._selector.close()
        os.close(self._wake)
        os.close(self._waker)

    def inject(self, frame: bytes) -> None:
        """Process a frame from the controller at the CPU port; only for the loop's thread.

        Raises ValueError without a CPU port, and any exception of the switch except Refused, which is counted.
        """
        if self.cpu is None:
            raise ValueError("the switch has no CPU port")
        self.from_controller += 1
        self._process(self.cpu, frame)

    def _visit_ports(self, now: float) -> tuple[bool, bool]:
        """Wait, and forward a batch of each port; return whether frames waited, and whether messages did."""
        ready = self._control is not None and self._control.ready
        has_frames = has_messages = False
        for key, _ in self._selector.select(0 if ready else min(_TICK, max(self._due - now, 0))):
            if key.data is None:
                self._carry_out()
            elif isinstance(key.data, int):
                self._forward(key.data)
                has_frames = True
            else:
                has_messages = True
        return has_frames, has_messages

    def _visit_control(self, now: float, *, has_messages: bool) -> None:
        """Call the timer if it is due, and let control work for a slice; both count for its share."""
        control = self._control
        has_work = control is not None and (has_messages or control.ready)
        if not has_work and now < self._due:
            return
        begin = time.thread_time()
        if now >= self._due:
            self._run_timer(now)
        if control is not None and has_work:
            self._work(control, now + SLICE)
        end = time.thread_time()
        busy = end - begin
        self.control_seconds += busy
        self.longest_visit = max(self.longest_visit, busy)
        self._control_due = end + busy * (1 / SHARE - 1)  # so that ``busy`` is SHARE of the time up to then

    def _work(self, control: Control, end: float) -> None:
        try:
            control.work(end)
        except Exception as error:
            self.fail("the control plane", error)
        if self._control is control and control.blocked != self._blocked:
            self._blocked = control.blocked
            events = selectors.EVENT_READ | selectors.EVENT_WRITE * self._blocked
            self._selector.modify(control, events, control)

    def _wake_loop(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake
            os.write(self._waker, b"\0")

    def _carry_out(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass
        while not self._requests.empty():
            action, future = self._requests.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(action())
            except BaseException as error:  # goes to the caller
                future.set_exception(error)

    def _forward(self, port: int) -> None:
        counters = self.counters[port]
        for _, frame in self._ports[port].receive():
            counters.frames_in += 1
            counters.bytes_in += len(frame)
            try:
                self._process(port, frame)
            except InterfaceLost:
                raise
            except Exception as error:
                self.fail(f"a frame of port {port} is lost", error)

    def _process(self, port: int, frame: bytes) -> None:
        try:
            outputs = self.switch.process(port, frame)
        except Refused as error:
            if port in self.counters:
                self.counters[port].refused += 1
            else:
                self.refused_from_controller += 1
            self._report_once(f"{error}; frames that need it are lost{self.remedy(error)}")
            return
        for destination, data in outputs:
            if destination == self.cpu:
                self.to_controller += 1
                self._to_controller(data)
            elif destination not in self._ports:
                self.unconnected += 1
            elif self._ports[destination].send(data):
                counters = self.counters[destination]
                counters.frames_out += 1
                counters.bytes_out += len(data)

    def _to_controller(self, frame: bytes) -> None:
        try:
            self.controller(frame)
        except Exception as error:
            self.fail("a frame to the controller is lost", error)

    def _run_timer(self, now: float) -> None:
        self._due = now + _TICK
        try:
            self._due = self.timer()
        except Exception as error:
            self.fail("digests and idle timeouts", error)

    def _report_once(self, text: str) -> None:
        if text not in self._reported and len(self._reported) < _MAX_REASONS:
            self._reported.add(text)
            self._report(text)

    def _read_counters(self) -> None:
        """Read the counters of the interfaces."""
        for port, interface in self._ports.items():
            counters = self.counters[port]
            counters.overrun += interface.overrun()
            counters.lost, counters.unsent = interface.lost, interface.unsent
        self._check_ports()
        if self._control is not None:
            try:
                self._control.check_clocks()
            except Exception as error:
                self.fail("the control plane", error)

    def _check_ports(self) -> None:
        if self._on_ports_down is not None:
            down = frozenset(port for port, interface in self._ports.items() if not interface.up())
            if down != self._down:
                self._down = down
                try:
                    self._on_ports_down(down)
                except Exception as error:
                    self.fail("ports that went up or down", error)
