"""What commands write into their live file, noted line by line."""

import json

import pytest

from fanin.runs import live


def noted(patch: pytest.MonkeyPatch) -> list[dict]:
    """Every live file that is written from now on, in order; each advance writes one."""
    found = []
    write_file = live.write_file

    def write(path, content):
        found.append(json.loads(content))
        write_file(path, content)

    patch.setattr(live, "MIN_SECONDS_BETWEEN_WRITES", 0.0)
    patch.setattr(live, "write_file", write)
    return found
