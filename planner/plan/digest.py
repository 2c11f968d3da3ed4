"""Hash of a plan's files, by which an edited plan is recognised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

PLAN_FILE, CONNECTIONS_FILE, DEVICES = "plan.json", "connections.json", "devices"
DIGEST = "sha256"  #: field of plan.json with the hash
_EXCLUDED_FIELDS = (DIGEST, "solver")  # fields of plan.json that are not hashed


def plan_digest(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the SHA-256 of a plan's JSON files, by name, except fields on the search and the hash itself."""
    hashed = {
        name: {
            field: value
            for field, value in content.items()
            if name != PLAN_FILE or field not in _EXCLUDED_FIELDS
        }
        for name, content in files.items()
    }
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()
