"""Settings that all tests share."""

import os

from amaranth.hdl import _ast
from hypothesis import settings

# A deadline measures the machine, not the code. In CI every run draws the same examples.
settings.register_profile("fanin", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fanin")


def _keep_shapes(kind: type) -> None:
    """Let values of a kind keep their shape: Amaranth works it out anew, operand by operand, whenever asked.

    A fifth of the time in which a component is elaborated goes into that; no value's shape ever changes.
    """
    work_out = kind.shape

    def shape(self):
        try:
            return self._kept_shape
        except AttributeError:
            self._kept_shape = work_out(self)
            return self._kept_shape

    kind.shape = shape


for _kind in ("Operator", "Slice", "Part", "Concat", "SwitchValue"):
    if hasattr(_ast, _kind):  # names of Amaranth's own, which may change: then tests only take longer
        _keep_shapes(getattr(_ast, _kind))
