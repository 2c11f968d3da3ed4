"""From the MODEL argument to a model: a shipped one, a file of the model language, or an ONNX file."""

from __future__ import annotations

import builtins
import traceback
from importlib import resources
from pathlib import Path

from fanin.errors import InputError
from fanin.planner import dsl
from fanin.planner.graph import Model

SHIPPED = ("example_cnn", "mobilenet_v2", "listing1")


def load_model(name: str) -> Model:
    """The model called ``name``. Raises InputError with file, line and layer."""
    if name in SHIPPED:
        with resources.as_file(resources.files("fanin.planner.models") / f"{name}.py") as path:
            return _run(path, name)
    path = Path(name)
    if path.suffix not in (".py", ".onnx"):
        raise InputError(f"{name}: is no .py or .onnx file, nor one of {', '.join(SHIPPED)}")
    if not path.is_file():
        raise InputError(f"{name}: no such file")
    if path.suffix == ".onnx":
        from fanin.planner.onnx_model import load_onnx

        return load_onnx(path)
    return _run(path, path.stem)


def _run(path: Path, name: str) -> Model:
    """Execute a file of the model language."""
    file = str(path)
    try:
        code = compile(path.read_bytes(), file, "exec")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno}: {error.msg}") from None
    except ValueError as error:  # a null byte
        raise InputError(f"{file}: {error}") from None
    with dsl.new_model() as builder:
        try:
            exec(code, {"__name__": name, "__file__": file, "__builtins__": builtins})
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{_line(file, error)}: {_said(error)}") from None
    return builder.finish(name, file)


def _line(file: str, error: BaseException) -> str:
    """File and line of the model, innermost, that an error came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{lines[-1]}" if lines else file


def _said(error: BaseException) -> str:
    said = str(error) or type(error).__name__
    if isinstance(error, NameError):
        from fanin import planner

        return f"{said}; layers are {', '.join(planner.__all__)}"
    return said
