"""Shape inference of onnx in a child process with bounded memory, since onnx may crash where memory ends."""

from __future__ import annotations

import os
import resource
import sys
import warnings
from pathlib import Path

import onnx
from onnx import ModelProto

from fanin.base.processes import die_with_parent

_RESULT, _ERROR = b"\0", b"\1"  # first byte of the child's answer


def infer_in_child(proto: ModelProto, max_bytes: int) -> ModelProto:
    """Return the model with inferred shapes.

    The child may take ``max_bytes`` of memory more than this process has. Raises ValueError with onnx's text,
    or if the memory does not suffice.
    """
    read_end, write_end = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork while threads run. The child only runs onnx, and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            die_with_parent(parent)
            _answer(proto, max_bytes, write_end)
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    if answer[:1] == _RESULT:
        return ModelProto.FromString(answer[1:])
    if answer[:1] == _ERROR:
        raise ValueError(answer[1:].decode(errors="replace"))
    raise ValueError(f"inference takes more than {max_bytes >> 20:,} MiB")


def _answer(proto: ModelProto, max_bytes: int, write_end: int) -> None:
    """Infer, and write the answer; nothing is written if the memory does not suffice."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a crash prints nothing on the command's stderr
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + max_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = limit if soft == resource.RLIM_INFINITY else min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        answer = _RESULT + onnx.shape_inference.infer_shapes(proto, data_prop=True).SerializeToString()
    except MemoryError:
        return
    except Exception as error:  # onnx raises many kinds
        if "bad_alloc" in str(error):
            return
        answer = _ERROR + str(error).encode()
    with os.fdopen(write_end, "wb") as file:
        file.write(answer)
