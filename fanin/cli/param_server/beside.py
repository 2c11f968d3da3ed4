"""``--beside``: further runs of the same training, each with some options changed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fanin.cli.param_server.options import model_options, server_options, time_options
from fanin.errors import InputError

#: Options that a run beside may change: who computes on what is the same, or nothing could be compared.
CHANGEABLE = (
    *("algorithm", "push-after", "receivers", "workers", "slots", "warm-up", "servers"),
    *("batch", "rate", "dtype", "costs", "sample-seconds", "jitter", "stragglers"),
)


def runs_beside(args: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The options of each further run. Raises InputError that names entry and cause."""
    for entry in args.beside or ():
        yield _changed(args, entry)


def _changed(args: argparse.Namespace, entry: str) -> argparse.Namespace:
    changed = argparse.Namespace(**vars(args) | {"beside": None, "pcap": None})
    pairs = [pair.partition("=") for pair in entry.split(",")]
    if any(name == "stragglers" for name, *_ in pairs):  # each adds to those before, the first run's among them
        changed.stragglers = None
    for name, equals, value in pairs:
        if not equals:
            raise InputError(f"--beside {entry}: {name!r} is not of the form algorithm=sync")
        if name not in CHANGEABLE:
            raise InputError(f"--beside {entry}: {name} is none of {', '.join(CHANGEABLE)}")
        try:
            _parser().parse_args([f"--{name}={value}"], changed)
        except argparse.ArgumentError as error:
            raise InputError(f"--beside {entry}: {error}") from error
    if changed.algorithm == "sync" != args.algorithm:  # wild's pushes are not taken over, unless they are named
        named = {name.replace("-", "_") for name, *_ in pairs}
        for name in {"push_after", "receivers"} - named:
            setattr(changed, name, _parser().get_default(name))
    return changed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    for options in (model_options, server_options, time_options):
        options(parser.add_argument_group())
    return parser
