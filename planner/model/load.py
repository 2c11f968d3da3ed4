"""Loader of models: shipped models, files of the model language, and ONNX files."""

from __future__ import annotations

import builtins
import contextlib
import sys
import traceback
from importlib import resources
from pathlib import Path
from types import CodeType

from fanin import planner
from fanin.base.errors import InputError
from fanin.planner.model import dsl
from fanin.planner.model.graph import Model

SHIPPED = ("example_cnn", "mobilenet_v2", "mobilenet_v2_32", "listing1", "digits_cnn")


def load_model(name: str) -> Model:
    """Load a model. ``name``: a name in SHIPPED, or a .py or .onnx file.

    Raises InputError of one line with file, line and layer.
    """
    try:
        return _load(name)
    except InputError as error:
        raise InputError(" ".join(str(error).splitlines())) from None


def _load(name: str) -> Model:
    if name in SHIPPED:
        with resources.as_file(resources.files("fanin.planner.model.shipped") / f"{name}.py") as path:
            return _run(path, name)
    path = Path(name)
    if path.suffix not in (".py", ".onnx"):
        raise InputError(f"{name}: must be a .py or .onnx file or one of {', '.join(SHIPPED)}")
    try:
        is_file = path.is_file()
    except OSError as error:  # such as a name that is too long, or a folder without permission
        raise InputError(f"{name}: {error.strerror}") from None
    if not is_file:
        raise InputError(f"{name}: no such file")
    if path.suffix == ".onnx":
        from fanin.planner.model.onnx_model import load_onnx

        return load_onnx(path)
    return _run(path, path.stem)


def _run(path: Path, name: str) -> Model:
    """Execute a file of the model language. Its prints go to stderr, since stdout is the command's."""
    file = str(path)
    code = _compile(path, file)
    with dsl.new_model() as builder:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                exec(code, {"__name__": name, "__file__": file, "__builtins__": builtins})
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{_line(file, error)}: {_error_text(error)}") from None
    return builder.finish(name, file)


def _compile(path: Path, file: str) -> CodeType:
    try:
        return compile(path.read_bytes(), file, "exec", dont_inherit=True)  # ignore this file's __future__
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except SyntaxError as error:
        location = f"{file}:{error.lineno}" if error.lineno else file
        raise InputError(f"{location}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; deep nesting
        raise InputError(f"{file}: {_error_text(error)}") from None


def _line(file: str, error: BaseException) -> str:
    """Return the innermost line of the model's file in an error's traceback."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{lines[-1]}" if lines else file


def _error_text(error: BaseException) -> str:
    try:
        text = f": {error}" if str(error) else ""
    except Exception:  # a broken exception class of the model
        text = ""
    unknown = (
        isinstance(error, NameError)
        or (isinstance(error, ImportError) and error.name == planner.__name__)
        or (isinstance(error, AttributeError) and error.obj is planner)
    )
    layers = f"; layers are {', '.join(planner.__all__)}" if unknown else ""
    return f"{type(error).__name__}{text}{layers}"
