"""A hash of a plan's files, which tells a plan that was edited from the one that was written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

PLAN_FILE, CONNECTIONS_FILE, DEVICES = "plan.json", "connections.json", "devices"
DIGEST = "sha256"  #: the field of plan.json
_APART = (DIGEST, "solver")  # of plan.json: the digest itself, and how the plan was found


def plan_digest(files: Mapping[str, Mapping[str, Any]]) -> str:
    """SHA-256 of a plan's JSON files, by their names; how it was searched does not count."""
    kept = {
        name: {field: value for field, value in content.items() if name != PLAN_FILE or field not in _APART}
        for name, content in files.items()
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
