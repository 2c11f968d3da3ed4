"""Graphs for the tests of ONNX files."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Writes a graph node by node. Outputs are called after their nodes."""

    def __init__(self, *shape, opset=17, **inputs):
        self.opset = opset
        self.inputs = inputs or {"x": shape or ("N", 3, 16, 16)}
        self.nodes, self.weights, self.outputs = [], [], []

    def __call__(self, op, *inputs, name=None, outputs=None, **attributes):
        name = f"/{op}_{len(self.nodes)}" if name is None else name
        outputs = outputs or [f"{name}_out_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def constant(self, value, kind=np.float32):
        self.weights.append(numpy_helper.from_array(np.asarray(value, kind), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape):
        return self.constant(np.zeros(shape))

    def bn(self, x, c):
        return self("BatchNormalization", x, *(self.weight(c) for _ in range(4)))

    def conv(self, x, shape, bias=False, **attributes):
        weights = [self.weight(*shape)] + ([self.weight(shape[0])] if bias else [])
        return self("Conv", x, *weights, **attributes)

    def gemm(self, x, inputs, outputs):
        return self("Gemm", x, self.weight(outputs, inputs), self.weight(outputs), transB=1)

    def proto(self, *outputs, **more):
        outputs = outputs or [self.nodes[-1].output[0]]
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in self.inputs.items()]
        made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", "classes"]) for n in outputs]
        graph = helper.make_graph(self.nodes, "net", given, made, self.weights)
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("custom", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=8, **more)


def flattened(net, x, form):
    """[N, 4, 2, 3] as [N, 24], in the forms that there are."""
    if form == "view":  # x.view(x.size(0), -1)
        size = net("Gather", net("Shape", x), net.constant(0, np.int64), axis=0)
        size = net("Unsqueeze", size, net.constant([0], np.int64))
        return net("Reshape", x, net("Concat", size, net("Constant", value_ints=[-1]), axis=0))
    if form == "Flatten":
        return net("Flatten", net("Identity", net("Dropout", x)), axis=-3)
    return net("Reshape", x, net.constant(form, np.int64))
