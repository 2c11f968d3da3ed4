"""The forwarding-pipeline configuration of a served switch: verified, saved, committed.

The program is the one that the switch was started with. A controller that sets a pipeline brings P4Info of
that program; its ids count from then on, and the switch starts anew. A device configuration (BMv2's JSON) is
stored and returned, and never executed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from finsy.proto import p4r

from fanin.sim.switch.embedded import Program, Switch
from fanin.sim.switch.service.entities import Entities
from fanin.sim.switch.service.faults import invalid, missing, unknown
from fanin.sim.switch.service.forwarding import Forwarding
from fanin.sim.switch.service.names import Names
from fanin.sim.switch.service.p4info import p4info
from fanin.sim.switch.service.packets import ControllerPackets

_Set = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest


@dataclass(frozen=True)
class Pipeline:
    """A configuration on a switch.

    ``config``: as the controller sent it.
    ``switch``: the switch that has its entries.
    ``entities``: reads and writes by the ids of its P4Info.
    ``packets``: its headers between switch and controller.
    """

    config: p4r.ForwardingPipelineConfig
    switch: Switch
    entities: Entities
    packets: ControllerPackets


class Pipelines:
    """The active pipeline of a switch, and a saved one that waits for COMMIT.

    ``fresh`` makes a switch as it was in the beginning; ``send`` hands a message to the primary controller.
    While a pipeline is saved, reads and writes go to its switch; frames still go to the active one.
    """

    def __init__(
        self,
        program: Program,
        forwarding: Forwarding[Switch],
        fresh: Callable[[], Switch],
        send: Callable[[p4r.StreamMessageResponse], bool],
    ):
        self._program = program
        self._forwarding = forwarding
        self._fresh = fresh
        self._send = send
        self._saved: Pipeline | None = None
        config = p4r.ForwardingPipelineConfig(p4info=p4info(program))
        self._realise(self._prepared(config, forwarding.switch))

    @property
    def entities(self) -> Entities:
        """Entities that a Read or a Write refers to."""
        return (self._saved or self.active).entities

    @property
    def packets(self) -> ControllerPackets:
        """Headers of the packets between the forwarding switch and its controller."""
        return self.active.packets

    def configure(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Carry out SetForwardingPipelineConfig. Raises Fault."""
        if request.action == _Set.RECONCILE_AND_COMMIT:
            raise missing("RECONCILE_AND_COMMIT is not implemented")
        if request.action == _Set.COMMIT:
            self._commit(request)
            return
        if request.action not in (_Set.VERIFY, _Set.VERIFY_AND_SAVE, _Set.VERIFY_AND_COMMIT):
            raise invalid(f"{request.action} is no action of a pipeline configuration")
        if not request.config.HasField("p4info"):
            raise invalid("the request has no P4Info")
        if request.action == _Set.VERIFY:
            Names(self._program, request.config.p4info)
            return
        pipeline = self._prepared(request.config, self._fresh())
        if request.action == _Set.VERIFY_AND_SAVE:
            self._saved = pipeline
        else:
            self._realise(pipeline)

    def _commit(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        if request.HasField("config"):
            raise invalid("COMMIT takes no configuration: it realises the saved one")
        if self._saved is None:
            raise unknown("no configuration is saved")
        self._realise(self._saved)

    def _prepared(self, config: p4r.ForwardingPipelineConfig, switch: Switch) -> Pipeline:
        names = Names(self._program, config.p4info)
        entities = Entities(switch, names, self._send, self._forwarding.wake)
        return Pipeline(config, switch, entities, ControllerPackets(config.p4info, self._program))

    def _realise(self, pipeline: Pipeline) -> None:
        """Let frames go through the switch of ``pipeline``."""
        self.active = pipeline
        self._saved = None
        self._forwarding.switch = pipeline.switch
        self._forwarding.timer = pipeline.entities.run
        self._forwarding.look_at(pipeline.entities.profiles.watch)

    def described(self, kind: int) -> p4r.ForwardingPipelineConfig:
        """The configuration that Read and Write refer to, with the parts that ``kind`` (ResponseType) names."""
        present = (self._saved or self.active).config
        config = p4r.ForwardingPipelineConfig()
        if present.HasField("cookie"):
            config.cookie.CopyFrom(present.cookie)
        if kind in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            config.p4info.CopyFrom(present.p4info)
        if kind in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            config.p4_device_config = present.p4_device_config
        return config
