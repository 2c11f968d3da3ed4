"""The forwarding-pipeline configuration of a served switch: verified, saved, committed.

The switch was started with one program, and a controller that sets a pipeline sends P4Info of that program.
From then on its ids apply, and the switch starts afresh. A device configuration (BMv2's JSON) is stored and
returned, and never executed.

A configuration comes through the *link* (:mod:`fanin.sim.switch.service.link`) from the *front*, the process
that speaks gRPC. The front has checked its P4Info (:mod:`fanin.sim.switch.service.verify`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from finsy.proto import p4i, p4r

from fanin.sim.switch.embedded import Program, Switch
from fanin.sim.switch.service.entities import Entities
from fanin.sim.switch.service.faults import invalid, unimplemented, unknown
from fanin.sim.switch.service.forwarding import Forwarding
from fanin.sim.switch.service.link import BARE_P4INFO, COOKIE, DEVICE, P4INFO
from fanin.sim.switch.service.memory import collect_all
from fanin.sim.switch.service.names import Names
from fanin.sim.switch.service.p4info import p4info
from fanin.sim.switch.service.packets import ControllerPackets
from fanin.sim.switch.service.protobuf import prefix

_Set = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest


@dataclass(frozen=True)
class Config:
    """A configuration as the front sends it: serialized, in fragments.

    ``fragments``: fragments by field number; an unset field has no entry. BARE_P4INFO is not a field: it is the
    front's copy of the P4Info without documentation, from which ids are read.
    """

    fragments: dict[int, list[bytes]] = field(default_factory=dict)

    def add(self, part: bytes) -> None:
        """Add a fragment: a byte with the field's number, then bytes of its value."""
        self.fragments.setdefault(part[0], []).append(part[1:])

    @property
    def info(self) -> p4i.P4Info:
        """Return the P4Info, without its documentation."""
        return p4i.P4Info.FromString(b"".join(self.fragments[BARE_P4INFO]))

    def fragments_of(self, numbers: tuple[int, ...]) -> tuple[int, list[bytes]]:
        """Return bytes and fragments of a message with the fields ``numbers``, as far as they are set."""
        message: list[bytes] = []
        for number in numbers:
            if number in self.fragments:
                fragments = self.fragments[number]
                field_bytes = sum(map(len, fragments))
                message += [prefix(number, field_bytes), *fragments]
        return sum(map(len, message)), message


@dataclass(frozen=True)
class Pipeline:
    """A configuration on a switch.

    - ``config``: the controller's configuration.
    - ``switch``: the switch that holds its entries.
    - ``entities``: reads and writes, by the ids of its P4Info.
    - ``packets``: its headers between switch and controller.
    """

    config: Config
    switch: Switch
    entities: Entities
    packets: ControllerPackets


class Pipelines:
    """The active pipeline of a switch, and a saved one that waits for COMMIT.

    While a pipeline is saved, reads and writes go to its switch; frames still go to the active one.

    - ``make_switch``: returns a new switch in its initial state.
    - ``send``: sends a message to the primary controller.
    """

    def __init__(
        self,
        program: Program,
        forwarding: Forwarding[Switch],
        make_switch: Callable[[], Switch],
        send: Callable[[p4r.StreamMessageResponse], bool],
    ):
        self._program = program
        self._forwarding = forwarding
        self._make_switch = make_switch
        self._send = send
        self._saved: Pipeline | None = None
        info = p4info(program).SerializeToString()
        config = Config({P4INFO: [info], BARE_P4INFO: [info]})
        self._realise(self._prepare(config, forwarding.switch))

    @property
    def entities(self) -> Entities:
        """Entities for a Read or a Write."""
        return (self._saved or self.active).entities

    @property
    def packets(self) -> ControllerPackets:
        """Headers of the packets between the forwarding switch and its controller."""
        return self.active.packets

    def check(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Raise Fault if SetForwardingPipelineConfig is impossible, whatever P4Info it has.

        The codes are UNIMPLEMENTED for RECONCILE_AND_COMMIT, NOT_FOUND for COMMIT without a saved
        configuration, and INVALID_ARGUMENT otherwise. The check reads only the presence of the fields of
        ``request.config``.
        """
        if request.action == _Set.RECONCILE_AND_COMMIT:
            raise unimplemented("RECONCILE_AND_COMMIT is not implemented")
        if request.action == _Set.COMMIT:
            if request.HasField("config"):
                raise invalid("COMMIT takes no configuration: it realises the saved one")
            if self._saved is None:
                raise unknown("no configuration is saved")
        elif request.action not in (_Set.VERIFY, _Set.VERIFY_AND_SAVE, _Set.VERIFY_AND_COMMIT):
            raise invalid(f"{request.action} is no action of a pipeline configuration")
        elif not request.config.HasField("p4info"):
            raise invalid("the request has no P4Info")

    def configure(self, action: int, config: Config) -> None:
        """Carry out SetForwardingPipelineConfig, after :meth:`check`; ``config`` is empty for COMMIT."""
        if action == _Set.VERIFY:
            return
        if action == _Set.COMMIT:
            assert self._saved is not None
            self._realise(self._saved)
        elif action == _Set.VERIFY_AND_SAVE:
            self._saved = self._prepare(config, self._make_switch())
        else:
            self._realise(self._prepare(config, self._make_switch()))
        collect_all()  # the replaced switch is full of cycles

    def _prepare(self, config: Config, switch: Switch) -> Pipeline:
        info = config.info
        names = Names(info)
        entities = Entities(switch, names, self._send, self._forwarding.wake)
        return Pipeline(config, switch, entities, ControllerPackets(info, self._program))

    def _realise(self, pipeline: Pipeline) -> None:
        """Make ``pipeline`` the active one, and drop a saved one: frames, timers and ports use its switch."""
        self.active = pipeline
        self._saved = None
        self._forwarding.switch = pipeline.switch
        self._forwarding.timer = pipeline.entities.run
        self._forwarding.watch_ports(pipeline.entities.profiles.watch)

    def config_fragments(self, kind: int) -> tuple[int, list[bytes]]:
        """Return bytes and fragments of the configuration that Read and Write use.

        ``kind`` (ResponseType) selects its parts; the cookie is always included.
        """
        fields = [COOKIE]
        if kind in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            fields.append(P4INFO)
        if kind in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            fields.append(DEVICE)
        return (self._saved or self.active).config.fragments_of(tuple(fields))
