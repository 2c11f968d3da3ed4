"""The ``fanin`` command: a subcommand per file; errors take one line.

Exit status: 0 done, 1 a check failed, 2 bad input, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from types import TracebackType

from fanin import __version__, campaign
from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.base.extras import how_to_install, how_to_reinstall
from fanin.base.printable import printable_streams
from fanin.base.processes import one_blas_thread
from fanin.cli import (
    board,
    cluster,
    codec,
    completion,
    doctor,
    link,
    nic,
    p4,
    param_server,
    plan,
    predict,
    rerun,
    ring,
    train,
    verilog,
    watch,
)
from fanin.cli.parser import Parser
from fanin.evaluation import bench, reproduce
from fanin.runs.ranks import run_on_ranks

EXIT_CHECK_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk or quota is full, or the file's limit is reached


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command."""
    parser = Parser(
        prog="fanin",
        description="Generate the hardware of a distributed-training system, and run it for real data.",
        epilog="Exit status: 0 done, 1 a check failed, 2 bad input.",
    )
    parser.add_argument("--version", action="version", version=f"fanin {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (
        train,
        predict,
        param_server,
        ring,
        link,
        nic,
        verilog,
        p4,
        codec,
        plan,
        cluster,
        board,
        bench,
        reproduce,
        doctor,
        watch,
    ):
        command.add_parser(commands)
    campaign.add_parser(commands, parser)
    rerun.add_parser(commands, parser)
    completion.add_parser(commands, parser)
    return parser


def _print_error(message: str, status: int) -> int:
    print(f"fanin: error: {' '.join(message.split())}", file=sys.stderr)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    if threading.current_thread() is not threading.main_thread():
        return _main(argv)  # no signals here, and the streams are those of all threads
    # On SIGTERM clean up as on an interrupt.
    previous_handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    try:
        with one_blas_thread(), printable_streams():
            return _main(argv)
    except Exception:
        sys.excepthook = _print_traceback
        raise
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unhandled exception, with control characters in untrusted text escaped."""
    with printable_streams():
        traceback.print_exception(kind, error, trace)


def _main(argv: Sequence[str] | None) -> int:
    try:
        args = build_parser().parse_args(argv)
        args.argv = list(sys.argv[1:] if argv is None else argv)
        status = run_on_ranks(args)
        sys.stdout.flush()
        return status
    except InputError as error:
        return _print_error(str(error), EXIT_BAD_INPUT)
    except ModuleNotFoundError as error:
        install = how_to_install(error)
        if install is None:
            raise
        return _print_error(install, EXIT_BAD_INPUT)
    except ImportError as error:
        reinstall = how_to_reinstall(error)
        if reinstall is None:
            raise
        return _print_error(reinstall, EXIT_BAD_INPUT)
    except (CheckFailed, ToolFailed) as error:
        return _print_error(str(error), EXIT_CHECK_FAILED)
    except KeyboardInterrupt as error:
        return _print_error(str(error) or "interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:  # the output's reader has ended, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk or a missing file, for instance: needs no traceback
        return _print_error(_os_error_text(error), EXIT_BAD_INPUT)


def _os_error_text(error: OSError) -> str:
    """Return file and cause. A full disk has no file's name: the error comes from a write."""
    if error.filename is None and error.errno in _FULL:
        places = f"the output's, the cache's, or that of temporary files, {tempfile.gettempdir()}"
        return f"{error.strerror}: on the disk of a file that was being written ({places})"
    if error.filename is None or error.strerror is None:
        return error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"
