"""Failure causes of nodes in words: the fault, and its remedy.

Drivers, commands, run folders, ``fanin doctor`` and docs/reference/causes.md use these texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fanin.cnn.memory import BEAT_BYTES
from fanin.hdl.glm.node_registers import Failure as GlmFailure
from fanin.hdl.layers.registers import Failure as CnnFailure
from fanin.hdl.net.link.job import LinkFailure
from fanin.hdl.param_server.server_control import Refusal as ServerRefusal
from fanin.hdl.ring.registers import Failure as RingFailure
from fanin.rdma.facts import Ending
from fanin.rdma.facts import Refusal as WriteRefusal


@dataclass(frozen=True)
class Cause:
    """Cause of a failure: the ``fault`` and its ``remedy``; each text is part of a line."""

    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.fault}; {self.remedy}"


@dataclass(frozen=True)
class Causes:
    """Causes of all members of an enumeration in a node's registers."""

    title: str  #: the node and the kind of failure
    members: Mapping[Enum, Cause | None]  #: cause by member; None for a member that is no failure


_LINK: Any = LinkFailure  # Amaranth's enumerations have no types
_NEW_JOB = "reset the transport, give the job a new id and start it again"
_RECONNECT = "connect the queue pair anew, at both ends"

#: All enumerations of causes in nodes' registers.
CAUSES: Mapping[type[Enum], Causes] = {
    GlmFailure: Causes(
        "GLM node: a run fails",
        {
            GlmFailure.NONE: None,
            GlmFailure.TIMEOUT: Cause(
                "a packet stayed unanswered after all its retransmissions",
                f"look at the switch, the cables and the other workers, then {_NEW_JOB}",
            ),
            GlmFailure.ROUND_WRAP: Cause("the job has used up its 2^32 rounds", _NEW_JOB),
            GlmFailure.SHAPE: Cause(
                "the shape registers ask for what this node cannot do",
                "check samples, columns, slots and member, or take a node with more depth or slots",
            ),
            GlmFailure.BUS: Cause(
                "memory answered a read of samples or labels with an error",
                f"check their addresses, then {_NEW_JOB}: the other workers have stopped, too",
            ),
            GlmFailure.ADDRESS: Cause(
                "an address of samples or labels is misaligned, or its data reach beyond the address space",
                "align it to the port's bytes, and start again",
            ),
            GlmFailure.LIST: Cause(
                "a list names an unused chunk, or too many items for a micro-batch",
                f"check the lists, then {_NEW_JOB}: the other workers have stopped, too",
            ),
        },
    ),
    RingFailure: Causes(
        "ring node and smart NIC: a job fails",
        {
            RingFailure.NONE: None,
            RingFailure.TIMEOUT: Cause(
                "the next node does not answer",
                "look at that node and at the cable to it, or give a longer timeout, then start all nodes anew",
            ),
            RingFailure.MISMATCH: Cause(
                "a neighbour has other settings or another descriptor",
                "give all hosts the same list of nodes, codec and descriptors, then start all nodes anew",
            ),
            RingFailure.MEMORY: Cause(
                "memory answered a read or a write with an error",
                "check the vectors' addresses, then start all nodes anew",
            ),
            RingFailure.SETTINGS: Cause(
                "the settings are out of range: nodes, rank, bound, timeout, retries or ack_frames",
                "mend them, and start again",
            ),
        },
    ),
    CnnFailure: Causes(
        "CNN node: a job fails",
        {
            CnnFailure.NONE: None,
            CnnFailure.TIMEOUT: Cause(
                "nothing moved for too long",
                "look at the memory and the neighbours, or give a longer timeout, then reset the node",
            ),
            CnnFailure.MEMORY: Cause(
                "memory answered a read or a write with an error", "check the addresses, then reset the node"
            ),
            CnnFailure.SETTINGS: Cause(
                "a job of no frames, or of batches of none", "give both counts, and start again"
            ),
            CnnFailure.LINK: Cause(
                "a connection failed, or its run was reset during the job",
                "look at the peer and the cable, then reset the nodes and begin a new run",
            ),
            CnnFailure.ADDRESS: Cause(
                f"an address is no multiple of {BEAT_BYTES} bytes, or beyond the node's address space",
                "mend it, and start again",
            ),
            CnnFailure.UNLOADED: Cause(
                "no parameters have been loaded since the node was reset", "load parameters first"
            ),
            CnnFailure.CONNECTION: Cause(
                "a connection has no run, or still holds words of an earlier job",
                "begin a new run on all nodes",
            ),
        },
    ),
    LinkFailure: Causes(
        "connection between CNN nodes fails",
        {
            _LINK.NONE: None,
            _LINK.TIMEOUT: Cause(
                "the peer does not answer", "look at it, at the cable and at the switch; then begin a new run"
            ),
            _LINK.MISMATCH: Cause(
                "frames are not those that are due", "give both ends the same run, then begin a new one"
            ),
            _LINK.LOSS: Cause(
                "a frame is lost",
                "a network without loss, or connections that send again; then begin a new run",
            ),
        },
    ),
    Ending: Causes(
        "one-sided write: it ends with an error",
        {
            Ending.DONE: None,
            Ending.REQUEST: Cause("the peer takes it for an invalid request", _RECONNECT),
            Ending.ACCESS: Cause(
                "the peer has no such region, or the range is not in it",
                f"check key, address and length, then {_RECONNECT}",
            ),
            Ending.OPERATION: Cause("the peer could not carry it out", f"look at the peer, then {_RECONNECT}"),
            Ending.RETRIES: Cause(
                "the peer has not answered", f"look at the peer and the cable, then {_RECONNECT}"
            ),
            Ending.FLUSHED: Cause(
                "its queue pair had failed before, or was connected anew meanwhile", _RECONNECT
            ),
        },
    ),
    WriteRefusal: Causes(
        "one-sided writes: the node refuses a command",
        {
            WriteRefusal.NONE: None,
            WriteRefusal.PLACE: Cause(
                "the node has no queue pair, or no region, with that place", "use a place that it has"
            ),
            WriteRefusal.BUSY: Cause(
                "its queue pair, or another connect, is still being connected", "wait until connecting is 0"
            ),
            WriteRefusal.SETTINGS: Cause(
                "no such path MTU, or a window above 1024 packets", "mend it, and connect again"
            ),
            WriteRefusal.RANGE: Cause("bytes beyond the memory's addresses", "a lower address, or fewer bytes"),
            WriteRefusal.LENGTH: Cause("a message above 2^31 bytes", "several messages"),
            WriteRefusal.FULL: Cause(
                "no place for its completion, or for the write", "take completions, or wait"
            ),
        },
    ),
    ServerRefusal: Causes(
        "parameter server: the node refuses a command",
        {
            ServerRefusal.NONE: None,
            ServerRefusal.BUSY: Cause(
                "the server is at work, takes gradients or sets a worker, or two commands came in one write",
                "write run 0, and wait until busy and setting are 0",
            ),
            ServerRefusal.SIZES: Cause(
                "a size is 0, more than the node has, or does not fit the others", "give sizes of ServerLayout"
            ),
            ServerRefusal.PLACE: Cause(
                "an address is no multiple of a word, or beyond the node's address space", "mend it"
            ),
            ServerRefusal.WORKER: Cause(
                "the node, or for exclude the job, has no such worker", "use the number of one that it has"
            ),
            ServerRefusal.UNSET: Cause(
                "a worker of the job was not set since the last start, or with other sizes",
                "set_worker for every worker, then start",
            ),
            ServerRefusal.NO_JOB: Cause("no job is started", "start one"),
            ServerRefusal.PRESENT: Cause("the worker is not excluded", "exclude it first"),
            ServerRefusal.DRAINING: Cause(
                "a gradient of the worker, its round, or a push to it is not complete",
                "wait until its bit in drained is 1",
            ),
            ServerRefusal.UNCONNECTED: Cause(
                "the worker's queue pair is not connected, or has failed", "connect it first"
            ),
        },
    ),
}


def cause_of(member: Enum) -> Cause | None:
    """Return a member's cause; None for a member that is no failure."""
    return CAUSES[type(member)].members[member]


def explain(member: Enum) -> str:
    """Return the member's name with its cause, as part of a line."""
    cause = cause_of(member)
    return f"{member.name}: {cause}" if cause else member.name


def explain_name(kind: type[Enum], name: object) -> str | None:
    """Return :func:`explain` of the member with that name; None if there is no such member."""
    named = next((member for member in CAUSES[kind].members if member.name == name), None)
    return explain(named) if named else None
