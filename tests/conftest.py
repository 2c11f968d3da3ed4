"""Settings that all tests share."""

import os

from hypothesis import settings

# A deadline measures the machine, not the code. In CI every run draws the same examples.
settings.register_profile("fanin", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fanin")
