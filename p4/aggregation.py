"""Aggregation program of the switch (docs/systems/aggregation.md), as tables and registers of a pipeline.

:func:`controls` describes the program for a configuration, and :mod:`fanin.p4.packets` its packets;
:mod:`fanin.p4.printer` prints the description for a target. A picture and the reasons for the layout are in
docs/systems/switch-program.md, the protocol between switches in docs/systems/trees.md.

A slot adds the values of a job's members, one sum per value. Each use of a slot is a round, with a number. A
packet of a member passes these steps, each of which reads and writes a register at most once:

1. Tables ``agg`` and ``ack`` mark the sender in the slot; ``meta.seen``: members marked before, in this round.
2. Table ``admission`` checks the sender; ``meta.opened``: the round that the packet opens, or 0.
3. For an AGG, a control ``Sum`` per value replaces the sum, adds to it, or only reads it.
4. Tables ``agg_answer`` and ``ack_answer`` read ``meta.answered``: whether the parent has answered the round.
5. Table ``verdict`` decides: answer all members, answer the sender, send to the parent, or drop.
6. In egress, ``Delivery`` writes each packet's addresses.

Below the root of a tree the parent's RESULT replaces the sums, and RESULT and CONFIRM go to all members.

Tables ``rejected`` and ``forward`` take the packets of others. Comments in this description become P4 comments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fanin.job import SLOTS
from fanin.p4.description import (
    Action,
    Assign,
    Case,
    ConstEntry,
    Control,
    Drop,
    Execute,
    Flood,
    Key,
    Multicast,
    Operation,
    Register,
    Table,
    Unicast,
)
from fanin.p4.tofino import STAGES, state_stages, sums_per_stage
from fanin.wire.aggregation import (
    AGGREGATION,
    DEFAULT_VALUES,
    MAX_VALUES,
    MAX_WORKERS,
    Encap,
    Kind,
    Protocol,
)
from fanin.wire.fields import field_bits

MAX_JOBS = 8  # at a time; determines table sizes
MAX_STATIONS = MAX_JOBS * MAX_WORKERS  # MAC addresses to which other traffic is forwarded
FLOOD_GROUP = 1  # multicast group of all ports
AGG_STATE, ACK_STATE = "Aggregation.agg_state", "Aggregation.ack_state"
AGG_ANSWERED, ACK_ANSWERED = "Aggregation.agg_answered", "Aggregation.ack_answered"


class Target(StrEnum):
    """Architecture of the switch: BMv2's or Tofino's."""

    V1MODEL = "v1model"
    TNA = "tna"


@dataclass(frozen=True, kw_only=True)
class ProgramConfig:
    """Parameters that are fixed when the program is emitted; jobs are added and removed at run time.

    The jobs share ``slots``. With ``encap`` UDP the program also accepts raw Ethernet. Raises ValueError, which
    names parameter, value and limit.
    """

    target: Target = Target.V1MODEL
    protocol: Protocol = Protocol.P4SGD
    workers: int = 4  #: maximum members of a job; 1…32
    slots: int = 32768  #: slots of the switch; a power of two up to 65536
    values: int = DEFAULT_VALUES  #: values per packet; 1…32
    encap: Encap = Encap.L2

    def __post_init__(self) -> None:
        for name, maximum, reason in (
            ("workers", MAX_WORKERS, f"a packet's bitmap has {MAX_WORKERS} bits"),
            ("slots", SLOTS, f"a packet's slot has {field_bits(AGGREGATION, 'slot')} bits"),
            ("values", MAX_VALUES, "no packet with more is tested on either target"),
        ):
            if not 1 <= getattr(self, name) <= maximum:
                raise ValueError(f"{name} must be in 1…{maximum}, not {getattr(self, name)!r}: {reason}")
        if self.slots & (self.slots - 1):
            raise ValueError(
                f"slots must be a power of two, not {self.slots!r}: jobs have aligned ranges of them"
            )
        if self.target is Target.TNA and self.stages > STAGES:
            raise ValueError(
                f"{self.values} values at {self.slots} slots would take {self.stages} stages, and Tofino has "
                f"{STAGES}: {self.sums_per_stage} sums of so many slots fit into one"
            )

    @property
    def stages(self) -> int:
        """Ingress stages on Tofino: those of the state, then those of the sums and of the parent's answers.

        At least two stages follow the state, because table ``verdict`` needs the answers' marks.
        """
        state = [2] * len(self.kinds) + [1]
        later_registers = self.values + len(self.answers)
        return state_stages(self.slots, state) + max(2, -(-later_registers // self.sums_per_stage))

    @property
    def sums_per_stage(self) -> int:
        """Values that a Tofino stage adds in parallel."""
        return sums_per_stage(self.slots)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of packet that workers send."""
        return self.protocol.to_switch

    @property
    def answers(self) -> tuple[Kind, ...]:
        """Kinds of packet that a parent sends, in the order of ``kinds``."""
        return self.protocol.to_worker

    @property
    def verdict_entries(self) -> int:
        """Entries per job in table ``verdict``, at most."""
        return len(self.kinds) * (4 * self.workers + 2) + len(self.answers) * 3


def _pair(name: str, kind: Kind, action: str) -> tuple[Register, Action]:
    """Return a register with the current round and its members so far, and the action that marks a sender."""
    register = Register(
        name,
        ("round", "seen"),
        f"For the {kind.name}s of each slot: the current round, and the members seen in it. The two words are "
        "one entry, since a packet may access a register once, and each new word depends on both.",
    )
    mark = Operation(
        f"mark_{name}",
        register,
        (
            Case(
                "current",
                "{round} == hdr.aggregation.round",
                "{seen}",
                {"seen": "{seen} | hdr.aggregation.bitmap"},
            ),
            Case(
                "next",
                "{round} + 1 == hdr.aggregation.round",
                update={"round": "hdr.aggregation.round", "seen": "hdr.aggregation.bitmap"},
            ),
        ),
        "The result is the members seen before this packet in its round: 0 if it opens the round or is stale.",
    )
    return register, Action(action, (Execute(mark, "meta.seen"),))


def _admission(config: ProgramConfig) -> tuple[tuple[Register, ...], tuple[Table, ...]]:
    """Return the state registers of the slots, and the tables that admit senders and access these registers."""
    members = MAX_JOBS * config.workers
    sender = (
        Key("job", "hdr.aggregation.job"),
        Key("port", "{ingress_port}"),
        Key("bitmap", "hdr.aggregation.bitmap"),
        Key("slot", "hdr.aggregation.slot"),
    )
    registers, tables = [], []
    for kind in config.kinds:
        name = kind.name.lower()
        register, mark = _pair(f"{name}_state", kind, f"mark_{name}")
        registers.append(register)
        tables.append(
            Table(
                name,
                sender,
                (mark,),
                f"{kind.name}s of members, within their job's slots. Each kind has its own table, since one "
                "table's actions cannot access different registers. A packet applies only one of these tables, "
                "so they share a stage.",
                members,
            )
        )
    current = Register(
        "current_round",
        ("number",),
        "A second copy of each slot's round. The operation on round and members has only one result, the "
        "members; this register distinguishes a packet that opens a round from a stale one.",
    )
    number = "hdr.aggregation.round"
    opens = Operation(
        "open_round",
        current,
        (Case("next", f"{{number}} + 1 == {number}", number, {"number": number}),),
        "An AGG of the next round opens it.",
    )
    check = Operation(
        "check_round",
        current,
        (Case("current", f"{{number}} == {number}", number),),
        "An ACK or an answer opens no round: it belongs to the current round, or it is late.",
    )
    admit = Assign("meta.admitted", "1")
    actions = (
        Action("admit_agg", (admit, Execute(opens, "meta.opened"))),
        Action("admit_current", (admit, Execute(check, "meta.opened"))),
    )
    tables.append(
        Table(
            "admission",
            (Key("kind", "hdr.aggregation.kind"), *sender),
            actions,
            "Senders that may aggregate, within their job's slots: members, and the parent (RESULT, CONFIRM).",
            len(config.kinds) * members + len(config.answers) * MAX_JOBS,
        )
    )
    return (*registers, current), tuple(tables)


def _sum(config: ProgramConfig) -> Control:
    """Return the control for the sums of one value; the program has one instance per value."""
    total = Register("total", ("sum",), "The sum of this value over the members seen, for each slot.")

    def action(name: str, case: Case, comment: str) -> Action:
        operation = Operation(f"{name}_sum", total, (case,), comment)
        return Action(name, (Execute(operation, "value" if case.result else None, "aggregation.slot"),))

    replace = action(
        "replace",
        Case("first", None, update={"sum": "value"}),
        "The first value of a round is the sum, so no packet clears it.",
    )
    add = action(
        "add",
        Case("next", None, "{sum} + value", {"sum": "{sum} + value"}),
        "The value of another member. Workers clamp their values, so the sum fits.",
    )
    read = action("read", Case("again", None, "{sum}"), "A repeated packet gets the present sum.")
    ignore = Action("ignore", ())
    entries = [
        ConstEntry(("_", f"{bit:#x} &&& {bit:#x}", f"{bit:#x}"), "read", "seen before" if bit == 1 else "")
        for bit in (1 << worker for worker in range(config.workers))
    ]
    entries += [
        ConstEntry(("0", "0", "_"), "ignore", "stale"),
        ConstEntry(("0", "_", "_"), "add", "new in a round that is open"),
        ConstEntry(("_", "_", "_"), "replace", "opens a round"),
    ]
    keys = (
        Key("opened", "meta.opened"),
        Key("seen", "meta.seen"),
        Key("bitmap", "aggregation.bitmap"),
    )
    table = Table(
        "accumulate",
        keys,
        (replace, add, read, ignore),
        "The entries, one per member, stand for `seen & bitmap`; to compute it would take a stage.",
        entries=tuple(entries),
    )
    return Control(
        "Sum",
        "Sums of one value. A stage has four stateful ALUs, so it adds four values in parallel.",
        (table,),
        ("accumulate.apply();",),
        (total,),
    )


def _parents_answer(kind: Kind, answer: Kind) -> tuple[Register, Table]:
    """Return the register with the parent's answers to packets of a kind, and the table that accesses it."""
    name = kind.name.lower()
    register = Register(
        f"{name}_answered",
        ("answered",),
        f"Below the root: 1 if the parent's {answer.name} of the slot's current round has arrived. A member's "
        "duplicate then gets the answer; before, it goes to the parent again.",
    )

    def action(verb: str, case: Case, comment: str) -> Action:
        operation = Operation(f"{verb}_{name}_answered", register, (case,), comment)
        return Action(f"{verb}_{name}_answer", (Execute(operation, "meta.answered" if case.result else None),))

    note = action(
        "note", Case("note", None, "{answered}", {"answered": "1"}), f"A repeated {answer.name} finds the mark."
    )
    look = action("look_up", Case("look", None, "{answered}"), "Whether the parent has answered.")
    forget = action("forget", Case("forget", None, update={"answered": "0"}), "The round is new.")
    ignore = Action(f"ignore_{name}_answer", ())
    keys = [Key("kind", "hdr.aggregation.kind"), Key("opened", "meta.opened")]
    entries = [
        ConstEntry((answer.name, "0"), ignore.name, "of another round"),
        ConstEntry((answer.name, "_"), note.name),
        ConstEntry(("_", "0"), look.name),
        ConstEntry(("_", "_"), forget.name, "opens a round"),
    ]
    if kind is Kind.ACK:  # ``opened`` marks all ACKs of the current round; the first has seen no other
        keys.append(Key("seen", "meta.seen"))
        *others, last = [ConstEntry((*entry.match, "_"), entry.action, entry.comment) for entry in entries]
        first = ConstEntry(("_", "_", "0"), forget.name, "the first of a round")
        entries = [*others, first, ConstEntry(last.match, look.name)]
    table = Table(
        f"{name}_answer",
        tuple(keys),
        (note, look, forget, ignore),
        f"Whether the parent has answered the {name.upper()}s of this round. At a root the mark stays 0.",
        entries=tuple(entries),
    )
    return register, table


def _verdict(config: ProgramConfig) -> Table:
    """Return the table that decides on a packet of a member or the parent."""
    answer = (
        Assign("hdr.aggregation.kind", "answer"),
        Assign("hdr.aggregation.bitmap", "members"),
        Multicast("to"),
    )
    parameters = (("answer", 4), ("members", 32), ("to", "{group_t}"))
    return Table(
        "verdict",
        (
            Key("kind", "hdr.aggregation.kind"),
            Key("job", "hdr.aggregation.job"),
            Key("opened", "meta.opened"),
            Key("seen", "meta.seen"),
            Key("bitmap", "hdr.aggregation.bitmap"),
            Key("answered", "meta.answered[0:0]"),
        ),
        (
            Action("complete", answer, parameters),
            Action("reply", answer, parameters),
            Action("to_parent", answer, parameters),
            Action("to_parent_again", answer, parameters),
            Action("hold", (Drop(),)),
            Action("duplicate", (Drop(),)),
            Action("stale", (Drop(),)),
        ),
        "Decision on a packet of a member or the parent. The entries, one per member, stand for `seen | bitmap "
        "== members`. A packet to one receiver is multicast, too, to a group of one: all have a replica id.",
        MAX_JOBS * config.verdict_entries,
        counted=True,
    )


def _others(config: ProgramConfig) -> tuple[Table, Table]:
    """Return the tables of packets that were not admitted, and of other traffic."""
    checksum = (Key("bad_checksum", "{bad_checksum}"),) if config.encap is Encap.UDP else ()
    rejected = Table(
        "rejected",
        (Key("values", "hdr.values.isValid()"), *checksum),
        (Action("malformed", (Drop(),)), Action("foreign", (Drop(),))),
        "Packets that were not admitted: malformed (version, kind, length, round or checksum), or foreign (not "
        "from a member). A counter in table admission would not fit beside the state.",
        2 + len(checksum),
        counted=True,
    )
    forward = Table(
        "forward",
        (Key("destination", "hdr.ethernet.destination"), Key("port", "{ingress_port}")),
        (
            Action("to_port", (Unicast("to"),), (("to", "{port_t}"),)),
            Action("stay", (Drop(),)),
            Action("flood", (Flood(),)),
        ),
        "Other traffic goes to its destination's port, except when it came from that port.",
        2 * MAX_STATIONS + 1,
        counted=True,
    )
    return rejected, forward


def _aggregation(config: ProgramConfig) -> Control:
    registers, admission = _admission(config)
    answers = [_parents_answer(*kinds) for kinds in zip(config.kinds, config.answers, strict=True)]
    sums = [f"sum{n}" for n in range(config.values)]
    apply = (
        "if ({well_formed}) {",
        "    if (hdr.aggregation.kind == AGG) {",
        "        agg.apply();",
        *(
            ("    } else if (hdr.aggregation.kind == ACK) {", "        ack.apply();")
            if config.protocol.acknowledges
            else ()
        ),
        "    }",
        "    admission.apply();",
        "}",
        "if (meta.admitted == 1) {",
        "    if (hdr.aggregation.kind == AGG || hdr.aggregation.kind == RESULT) {",
        *(f"        {name}.apply(hdr.aggregation, meta, hdr.values.v{n});" for n, name in enumerate(sums)),
        "        agg_answer.apply();",
        *(("    } else {", "        ack_answer.apply();") if config.protocol.acknowledges else ()),
        "    }",
        "    verdict.apply();",
        "} else if (meta.aggregation == 1 || !hdr.ethernet.isValid()) {",
        "    rejected.apply();",
        "} else {",
        "    forward.apply();",
        "}",
    )
    return Control(
        "Aggregation",
        "",
        (*admission, *(table for _, table in answers), _verdict(config), *_others(config)),
        apply,
        (*registers, *(register for register, _ in answers)),
        tuple(("Sum", n) for n in sums),
    )


def _delivery(config: ProgramConfig) -> Control:
    fields = {"ethernet.destination": ("mac", 48), "ethernet.source": ("own_mac", 48)}
    if config.encap is Encap.UDP:
        fields |= {
            "ipv4.destination": ("ip", 32),
            "ipv4.source": ("own_ip", 32),
            "udp.destination_port": ("udp_port", 16),
            "udp.source_port": ("own_udp_port", 16),
        }
    body = [Assign(f"hdr.{name}", parameter) for name, (parameter, _) in fields.items()]
    if config.encap is Encap.UDP:
        body.append(Assign("hdr.udp.checksum", "0"))
    address = Action("address", tuple(body), tuple(fields.values()))
    members = Table(
        "members",
        (Key("replica", "{replica}", "exact"),),
        (address,),
        "Writes the addresses of receiver (member or parent) and switch. Ingress cannot do this, since copies "
        "of a multicast packet differ only in their replica id, which egress reads.",
        MAX_JOBS * (config.workers + 1),
    )
    return Control("Delivery", "", (members,), ("members.apply();",))


def state_registers(config: ProgramConfig) -> tuple[str, ...]:
    """Return names of registers that must be 0 in a job's slots when it begins; the sums need no reset."""
    return tuple(f"Aggregation.{register.name}" for register in _aggregation(config).registers)


def sum_registers(config: ProgramConfig) -> tuple[str, ...]:
    """Return names of the registers with the sums, in the values' order."""
    return tuple(f"Aggregation.{name}.total" for _, name in _aggregation(config).instances)


def register_fields(config: ProgramConfig) -> dict[str, tuple[str, ...]]:
    """Return all registers by name, with the names of an entry's 32-bit words."""
    state = {f"Aggregation.{r.name}": r.words for r in _aggregation(config).registers}
    return state | dict.fromkeys(sum_registers(config), ("total",))


def register_words(config: ProgramConfig) -> dict[str, int]:
    """Return all registers by name, with the number of an entry's 32-bit words."""
    return {name: len(words) for name, words in register_fields(config).items()}


def controls(config: ProgramConfig) -> tuple[Control, Control, Control]:
    """Return the controls of a sum, of ingress and of egress."""
    return _sum(config), _aggregation(config), _delivery(config)
