"""What users see of one run per system is as it was, but where a commit changes it and these texts together."""

import difflib

import pytest

from tests.frozen import COMMANDS, kept, observed


@pytest.mark.slow  # a sum in another order may round another way on another machine: not for users
@pytest.mark.verilator
@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_looks_as_it_did(name):
    """``python -m tests.frozen NAME`` writes the texts anew, where the change is wanted."""
    before, now = kept(name), observed(COMMANDS[name])
    assert before.keys() == now.keys()
    for file, text in now.items():
        lines = difflib.unified_diff(before[file].splitlines(), text.splitlines(), f"{name}/{file}", "now", n=1)
        assert not (found := list(lines)), "\n".join(found)
