"""A network whose concatenation takes and gives two words a cycle where its neighbours do one."""

from fanin.cnn.facts import Network, Stage
from fanin.cnn.layers.layer import Parallelism
from fanin.planner.model import dsl

CHANNELS = 128  #: of each input of the concatenation: far more transfers of a position than are spare
PERIOD = 1024  #: cycles of the convolutions, of the concatenation and of what is in front of it
_WIDE = {
    "conv1": Parallelism(pic=2, poc=4, pi=1, po=2),
    "relu1": Parallelism(pi=2, po=2),
    "bias1": Parallelism(pi=2, po=2),
    "concat1": Parallelism(pi=4, po=4),
    "conv2": Parallelism(pic=8, poc=2, pi=4, po=1),
}


def _turns() -> Network:
    with dsl.new_model() as builder:
        y = dsl.conv(CHANNELS, 1, 1, dsl.add_input("x", [4, 4, 2]))
        y = dsl.conv(2, 1, 1, dsl.concat(dsl.relu(y), dsl.bias(y)))
        y = dsl.dense(3, dsl.global_avg_pool(y))
        dsl.add_output("o", dsl.soft_cross_loss(y, dsl.add_input("l", [3])))
        model = builder.finish("turns", "test")
    stages = (Stage(n.name, n.layer, _WIDE.get(n.name, Parallelism()), n.sources) for n in model.nodes)
    return Network("turns", tuple(stages))


TURNS = _turns()
CONCAT = next(index for index, stage in enumerate(TURNS.stages) if stage.name == "concat1")
