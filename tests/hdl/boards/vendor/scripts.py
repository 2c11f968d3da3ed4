"""Tcl as the vendors' tools read it: run with commands in place of theirs that only write down their calls."""

import contextlib
import tkinter

# What Tcl itself has is run; all else is the tool's.
_RECORDER = """
set ::calls {}
proc unknown {args} {
    lappend ::calls $args
    return [lindex $args 0]
}
foreach own {quit package} {proc $own {args} [list lappend ::calls $own]}
"""


def run(folder, name):
    """The calls of the tool's commands in a script, each a list of words; a syntax error is an error."""
    interpreter = tkinter.Tcl()
    interpreter.eval(_RECORDER)
    with contextlib.chdir(folder):
        interpreter.eval(f"source {{{name}}}")
    split = interpreter.splitlist
    return [list(split(call)) for call in split(interpreter.eval("set ::calls"))]


def words(calls, command):
    """The arguments of all calls of a command."""
    return [call[1:] for call in calls if call[0] == command]
