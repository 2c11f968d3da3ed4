"""Hash of a plan's files, which distinguishes an edited plan from the one that was written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

PLAN_FILE, CONNECTIONS_FILE, DEVICES = "plan.json", "connections.json", "devices"
DIGEST = "sha256"  #: field of plan.json
_APART = (DIGEST, "solver")  # fields of plan.json that are left out: the digest itself, and the search


def plan_digest(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the SHA-256 of a plan's JSON files, by their names, without details of the search."""
    kept = {
        name: {field: value for field, value in content.items() if name != PLAN_FILE or field not in _APART}
        for name, content in files.items()
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
