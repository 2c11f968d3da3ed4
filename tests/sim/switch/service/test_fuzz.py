"""Random and damaged requests to the P4Runtime server: each gets a status, and the state is what was accepted.

The model knows nothing of the server but its answers: an update that was accepted is in it, and reading gives
what is in it. What exists is not inserted, and what does not exist neither modified nor deleted.
"""

import contextlib
import random
import time

import grpc
import pytest
from finsy.proto import p4d, p4r, p4r_grpc, rpc_code, rpc_status

from fanin.sim.switch.service.p4info import p4info
from tests.sim.switch.service.served import SELECTED, TEXT, Served, frame_to
from tests.support import new_seed, slow

PATIENCE = 20.0  # seconds for one answer
DEVICE = 7
KINDS = (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE)
INSERT, MODIFY, DELETE = KINDS


class Writer:
    """Makes updates that are mostly right, from a program's P4Info."""

    def __init__(self, info, rng):
        self._info = info
        self._rng = rng
        self._actions = {action.preamble.id: action for action in info.actions}

    def update(self):
        rng = self._rng
        makers = [self._entry] * 6 + [self._group, self._session, self._member, self._members, self._counter]
        makers += [self._register, self._digest, self._default, self._direct_counter]
        while not (entity := rng.choice(makers)()):
            pass
        return p4r.Update(type=rng.choice(KINDS), entity=entity)

    def _bytes(self, width):
        number = self._rng.choice((0, 1, 2, 3, self._rng.getrandbits(width or 1))) & (1 << (width or 1)) - 1
        padding = bytes(self._rng.choice((0, 0, 0, 2)))
        return padding + number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")

    def _action(self, refs):
        action = self._actions[self._rng.choice(refs).id]
        params = [p4r.Action.Param(param_id=p.id, value=self._bytes(p.bitwidth)) for p in action.params]
        return p4r.Action(action_id=action.preamble.id, params=params)

    def _entry(self):
        rng = self._rng
        table = rng.choice(self._info.tables)
        entry = p4r.TableEntry(table_id=table.preamble.id)
        for field in table.match_fields:
            self._match(entry, field)
        ordered = any(f.match_type in (3, 5, 6) for f in table.match_fields)
        entry.priority = rng.choice((1, 2, 3)) if ordered else 0
        self._acts(entry, table)
        entry.metadata = rng.choice((b"", b"mine"))
        entry.controller_metadata = rng.choice((0, 0, 5))
        if table.idle_timeout_behavior:
            entry.idle_timeout_ns = rng.choice((0, 10**15))
        return p4r.Entity(table_entry=entry)

    def _match(self, entry, field):
        kind, width = field.match_type, field.bitwidth
        if kind != 2 and self._rng.random() < 0.3:
            return
        item = entry.match.add(field_id=field.id)
        if kind == 2:
            item.exact.value = self._bytes(width)
        elif kind == 3:
            item.lpm.value, item.lpm.prefix_len = self._bytes(1), self._rng.choice((0, 1, width))
        elif kind == 4:
            item.ternary.value, item.ternary.mask = b"\1", self._bytes(width)
        elif kind == 5:
            item.range.low, item.range.high = self._bytes(2), self._bytes(width)
        else:
            item.optional.value = self._bytes(width)

    def _acts(self, entry, table):
        rng = self._rng
        if not table.implementation_id:
            entry.action.action.CopyFrom(self._action(table.action_refs))
        elif rng.random() < 0.3:
            for _ in range(rng.randrange(4)):
                entry.action.action_profile_action_set.action_profile_actions.add(
                    action=self._action(table.action_refs), weight=rng.choice((0, 1, 2)), watch_port=b"\1"
                )
        else:
            name = rng.choice(("action_profile_member_id", "action_profile_group_id"))
            setattr(entry.action, name, rng.randrange(4))

    def _default(self):
        table = self._rng.choice(self._info.tables)
        entry = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        if self._rng.random() < 0.7:
            entry.action.action.CopyFrom(self._action(table.action_refs))
        return p4r.Entity(table_entry=entry)

    def _member(self):
        if not self._info.action_profiles:
            return None
        profile = self._rng.choice(self._info.action_profiles)
        table = next(t for t in self._info.tables if t.preamble.id == profile.table_ids[0])
        return p4r.Entity(
            action_profile_member=p4r.ActionProfileMember(
                action_profile_id=profile.preamble.id,
                member_id=self._rng.randrange(5),
                action=self._action(table.action_refs),
            )
        )

    def _members(self):
        if not self._info.action_profiles:
            return None
        rng = self._rng
        profile = rng.choice(self._info.action_profiles)
        group = p4r.ActionProfileGroup(
            action_profile_id=profile.preamble.id, group_id=rng.randrange(4), max_size=rng.choice((0, 4, 5))
        )
        for _ in range(rng.randrange(4)):
            group.members.add(member_id=rng.randrange(5), weight=rng.choice((0, 1, 1, 3)))
        return p4r.Entity(action_profile_group=group)

    def _replicas(self):
        return [
            p4r.Replica(egress_port=self._rng.randrange(4), instance=self._rng.randrange(3))
            if self._rng.random() < 0.7
            else p4r.Replica(port=b"\2", instance=1)
            for _ in range(self._rng.randrange(4))
        ]

    def _group(self):
        group = p4r.MulticastGroupEntry(multicast_group_id=self._rng.randrange(4), replicas=self._replicas())
        entry = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
        return p4r.Entity(packet_replication_engine_entry=entry)

    def _session(self):
        session = p4r.CloneSessionEntry(session_id=self._rng.randrange(4), replicas=self._replicas())
        entry = p4r.PacketReplicationEngineEntry(clone_session_entry=session)
        return p4r.Entity(packet_replication_engine_entry=entry)

    def _index(self, low, end):
        """An index; unset once in four times, which means all cells."""
        return p4r.Index(index=self._rng.randrange(low, end)) if self._rng.random() < 0.75 else None

    def _counter(self):
        if not self._info.counters:
            return None
        info = self._rng.choice(self._info.counters)
        entry = p4r.CounterEntry(counter_id=info.preamble.id, index=self._index(-1, 5))
        if self._rng.random() < 0.9:
            entry.data.packet_count = self._rng.getrandbits(40)
        return p4r.Entity(counter_entry=entry)

    def _direct_counter(self):
        entry = p4r.DirectCounterEntry(table_entry=self._entry().table_entry)
        if self._rng.random() < 0.9:
            entry.data.packet_count = self._rng.getrandbits(40)
        return p4r.Entity(direct_counter_entry=entry)

    def _register(self):
        if not self._info.registers:
            return None
        info = self._rng.choice(self._info.registers)
        entry = p4r.RegisterEntry(register_id=info.preamble.id, index=self._index(0, 9))
        entry.data.bitstring = self._bytes(48)
        return p4r.Entity(register_entry=entry)

    def _digest(self):
        if not self._info.digests:
            return None
        config = p4r.DigestEntry.Config(max_list_size=self._rng.randrange(-1, 3))
        number = self._info.digests[0].preamble.id
        return p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number, config=config))


def damaged(message, rng):
    """The message with some bytes of it changed, as far as that is a message at all."""
    data = bytearray(message.SerializeToString())
    for _ in range(rng.randrange(1, 4)):
        if not data:
            break
        place = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                del data[place : place + rng.randrange(1, 4)]
            case 2:
                data[place:place] = rng.randbytes(rng.randrange(1, 4))
    with contextlib.suppress(Exception):  # protobuf's own class for what is no message
        found = type(message).FromString(bytes(data))
        found.DiscardUnknownFields()
        return found
    return message


class Model:
    """What was accepted: entities by their key. ``counted``: ids of the tables with a direct counter."""

    def __init__(self, state, counted=()):
        self.state = dict(state)
        self.initial = dict(state)
        self._counted = counted

    def apply(self, update, code):
        """An update and its answer."""
        kind, (key, value) = update.type, keyed(update.entity)
        present = key in self.state
        if code != rpc_code.OK:
            return
        assert key is not None, update
        assert kind in KINDS, update
        if key[0] in ("counter", "register"):
            assert kind == MODIFY
            self._set_cells(key, value)
            return
        if key[0] == "hits":
            assert kind == MODIFY
            entry = ("entry", *key[1:])
            *rest, counts = self.state[entry]
            self.state[entry] = (*rest, counts if value is None else value)
            return
        if key[0] == "default":
            assert kind == MODIFY
        else:
            assert present == (kind != INSERT), (update, present)
        if kind == DELETE:
            del self.state[key]
            return
        if key[0] == "default" and value[0] is None:
            value = self.initial[key]
        if key[0] == "entry":
            value = self._entry(key, value)
        self.state[key] = value

    def _entry(self, key, value):
        """An entry after a write: a MODIFY without an action or a count keeps those of before."""
        action, *own, counts = value
        before = self.state.get(key, (None, (0, 0) if key[1] in self._counted else None))
        return (before[0] if action is None else action, *own, before[-1] if counts is None else counts)

    def _set_cells(self, key, value):
        """Set the cell of a counter or register; without an index, all its cells."""
        *array, index = key
        cells = [k for k in self.state if k[:2] == tuple(array) and index in (None, k[2])]
        assert cells, key
        if value is not None:  # a counter without data stays as it was
            self.state.update(dict.fromkeys(cells, value))


def keyed(entity):
    """The key of an entity and the rest of it, numbers in their canonical form."""
    kind = entity.WhichOneof("entity")
    found = getattr(entity, kind) if kind else None
    if kind == "table_entry":
        action = canonical(found.action) if found.HasField("action") else None
        own = (found.metadata, found.controller_metadata, found.idle_timeout_ns)
        if found.is_default_action:
            return ("default", found.table_id), (action, *own)
        return ("entry", *_place(found)), (action, *own, _counts(found, "counter_data"))
    if kind == "direct_counter_entry":
        return ("hits", *_place(found.table_entry)), _counts(found, "data")
    if kind == "action_profile_member":
        return ("member", found.action_profile_id, found.member_id), canonical(found.action)
    if kind == "action_profile_group":
        return ("group", found.action_profile_id, found.group_id), canonical(found)
    if kind == "packet_replication_engine_entry":
        which = found.WhichOneof("type")
        inner = getattr(found, which) if which else None
        if which == "multicast_group_entry":
            return ("multicast", inner.multicast_group_id), canonical(inner)
        return ("session", inner.session_id if which else 0), canonical(inner) if which else b""
    if kind == "counter_entry":
        return ("counter", found.counter_id, _index(found)), _counts(found, "data")
    if kind == "register_entry":
        return ("register", found.register_id, _index(found)), canonical(found.data)
    if kind == "digest_entry":
        return ("digest", found.digest_id), canonical(found.config)
    return None, None


def _place(entry):
    """The key of a table entry."""
    return entry.table_id, frozenset(canonical(item) for item in entry.match), entry.priority


def _counts(message, field):
    """Packets and bytes that a message gives; None without them."""
    data = getattr(message, field)
    return (data.packet_count, data.byte_count) if message.HasField(field) else None


def _index(cell):
    """The index of a counter's or register's cell; None of all cells."""
    return cell.index.index if cell.HasField("index") else None


def canonical(message):
    """As text, without zeros in front of numbers, and with parameters in order."""
    copy = type(message)()
    copy.CopyFrom(message)
    _strip(copy)
    return copy.SerializeToString(deterministic=True)


def _strip(message):
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in value if field.is_repeated else [value]:
                _strip(item)
            if field.name == "params":
                ordered = sorted(value, key=lambda param: param.param_id)
                copies = [type(item).FromString(item.SerializeToString()) for item in ordered]
                del value[:]
                value.extend(copies)
        elif field.name in ("value", "mask", "low", "high", "bitstring", "port", "watch_port"):
            setattr(message, field.name, value.lstrip(b"\0") or b"\0")


class Session:
    """The primary controller of a served program."""

    def __init__(self, served, rng):
        self._channel = grpc.insecure_channel(served.address)
        self.stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._rng = rng
        self.election = p4r.Uint128(low=10)
        bid = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=self.election)
        self._requests = [p4r.StreamMessageRequest(arbitration=bid)]
        self._stream = self.stub.StreamChannel(iter(self._sent, None))
        next(self._stream)

    def _sent(self):
        while not self._requests:
            time.sleep(0.005)
        return self._requests.pop(0)

    def say(self, message):
        """Something on the stream."""
        self._requests.append(message)

    def write(self, updates):
        """The code of each update; or one for all, where the whole request was refused."""
        request = p4r.WriteRequest(device_id=DEVICE, election_id=self.election, updates=updates)
        try:
            self.stub.Write(request, timeout=PATIENCE)
        except grpc.RpcError as error:
            details = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
            codes = []
            for packed in rpc_status.Status.FromString(details).details:
                single = p4r.Error()
                packed.Unpack(single)
                codes.append(single.canonical_code)
            assert len(codes) == len(updates)
            return codes
        return [rpc_code.OK] * len(updates)

    def read(self):
        """Everything, by key."""
        wanted = [
            p4r.Entity(table_entry=p4r.TableEntry(counter_data=p4r.CounterData())),
            p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True)),
            p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
            p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
            p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry()),
            p4r.Entity(counter_entry=p4r.CounterEntry()),
            p4r.Entity(register_entry=p4r.RegisterEntry()),
            p4r.Entity(digest_entry=p4r.DigestEntry()),
        ]
        request = p4r.ReadRequest(device_id=DEVICE, entities=wanted)
        found = [e for r in self.stub.Read(request, timeout=PATIENCE) for e in r.entities]
        pairs = [keyed(entity) for entity in found]
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def close(self):
        """End it."""
        self._requests.append(None)
        self._channel.close()


def _answered(call):
    """Make a call, which ends with a status that the server has chosen."""
    try:
        call()
    except grpc.RpcError as error:
        chosen = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin") is not None
        unchosen = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL)
        if error.code() in unchosen and not chosen:
            raise


def _noise(session, rng, info):
    """A request of another kind, damaged; whatever it is, it is answered."""
    stub = session.stub
    out = p4r.PacketOut(payload=rng.randbytes(rng.randrange(40)))
    for number in range(rng.randrange(4)):
        out.metadata.add(metadata_id=number, value=rng.randbytes(rng.randrange(3)))
    acknowledgement = p4r.DigestListAck(digest_id=rng.randrange(3), list_id=rng.randrange(3))
    match rng.randrange(6):
        case 0:
            session.say(_no_bid(damaged(p4r.StreamMessageRequest(packet=out), rng)))
        case 1:
            session.say(_no_bid(damaged(p4r.StreamMessageRequest(digest_ack=acknowledgement), rng)))
        case 2:
            wrong = p4r.WriteRequest(device_id=rng.randrange(9), role="x", atomicity=rng.randrange(3))
            _answered(lambda: stub.Write(damaged(wrong, rng), timeout=PATIENCE))
        case 3:
            entity = rng.choice((Writer(info, rng).update().entity, p4r.Entity()))
            request = p4r.ReadRequest(device_id=DEVICE, entities=[damaged(entity, rng)])
            _answered(lambda: list(stub.Read(request, timeout=PATIENCE)))
        case 4:
            request = p4r.SetForwardingPipelineConfigRequest(
                device_id=DEVICE, election_id=session.election, action=rng.choice((1, 5))
            )
            request.config.p4info.CopyFrom(damaged(info, rng))
            _answered(lambda: stub.SetForwardingPipelineConfig(request, timeout=PATIENCE))
        case 5:
            bid = p4r.MasterArbitrationUpdate(
                device_id=rng.choice((DEVICE, DEVICE, 0)),
                election_id=p4r.Uint128(low=rng.randrange(session.election.low + 1)),
                role=p4r.Role(name=rng.choice(("", "", "other"))),
            )
            bids = iter([p4r.StreamMessageRequest(arbitration=bid)])
            _answered(lambda: list(stub.StreamChannel(bids, timeout=PATIENCE)))


def _no_bid(message):
    """A message that does not end the stream of the primary controller, as a bid that is wrong does."""
    return p4r.StreamMessageRequest() if message.WhichOneof("update") == "arbitration" else message


def _accepted(state, entity):
    """The state after an accepted MODIFY."""
    model = Model(state)
    model.apply(p4r.Update(type=MODIFY, entity=entity), rpc_code.OK)
    return model.state


def test_the_model_sets_all_cells_of_an_array_without_an_index():
    cells = {("counter", 1, 0): (3, 0), ("counter", 1, 1): (4, 0), ("counter", 2, 0): (5, 0)}

    def write(**fields):
        return _accepted(cells, p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=1, **fields)))

    data = p4r.CounterData(packet_count=9)
    assert write(data=data) == cells | {("counter", 1, 0): (9, 0), ("counter", 1, 1): (9, 0)}
    assert write(data=data, index=p4r.Index()) == cells | {("counter", 1, 0): (9, 0)}
    assert write() == cells
    cells = {("register", 1, 0): b"", ("register", 1, 1): b"", ("register", 2, 0): b""}
    number = p4d.P4Data(bitstring=b"\1")
    register = p4r.RegisterEntry(register_id=1, data=number)
    one = number.SerializeToString()
    after = cells | {("register", 1, 0): one, ("register", 1, 1): one}
    assert _accepted(cells, p4r.Entity(register_entry=register)) == after


@pytest.mark.parametrize(
    ("text", "rounds"),
    [(TEXT, 25), (SELECTED, 25), *slow((TEXT, 5000), (SELECTED, 5000))],
    ids=["all", "selected", "all-long", "selected-long"],
)
def test_what_is_accepted_is_there_and_nothing_else(text, rounds, capfd):
    seed = new_seed()
    rng = random.Random(seed)
    with contextlib.closing(Served(text)) as served, contextlib.closing(Session(served, rng)) as session:
        info = p4info(served.program)
        writer = Writer(info, rng)
        model = Model(session.read(), {counter.direct_table_id for counter in info.direct_counters})
        for number in range(rounds):
            updates = [writer.update() for _ in range(rng.randrange(1, 6))]
            updates = [damaged(u, rng) if rng.random() < 0.3 else u for u in updates]
            for update, code in zip(updates, session.write(updates), strict=True):
                assert code in rpc_code.Code.values(), code
                assert code not in (rpc_code.UNKNOWN, rpc_code.INTERNAL), (seed, update)
                model.apply(update, code)
            if rng.random() < 0.5:
                _noise(session, rng, info)
            if number % 20 == 19 or number == rounds - 1:
                assert session.read() == model.state, seed
        served.send(0, frame_to(0x10))
        assert served.forwarding.run_in_loop(lambda: served.forwarding.failed) == 0, (seed, served.said)
    assert "Traceback" not in capfd.readouterr().err
