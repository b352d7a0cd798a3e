"""Files of the ONNX model zoo, rebuilt from their descriptions with their nodes and names, and CIFAR's ResNets: for counts."""

import numpy as np
from onnx import TensorProto

from net import Net, image_net


class ZooNet(Net):
    """Nodes have the names of the file; the opset is the file's."""

    def __init__(self, name, opset, inputs):
        super().__init__(name, inputs)
        self.opset, self.own_name = opset, None

    def fresh(self, op):
        return self.own_name or f"{op}_{len(self.nodes)}"

    def named(self, name, op, *inputs, **attributes):
        self.own_name = name
        result = self.op(op, *inputs, **attributes)
        self.own_name = None
        return result


INCEPTIONS = [{"3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64)},
              {"4a": (192, 96, 208, 16, 48, 64), "4b": (160, 112, 224, 24, 64, 64), "4c": (128, 128, 256, 24, 64, 64),
               "4d": (112, 144, 288, 32, 64, 64), "4e": (256, 160, 320, 32, 128, 128)},
              {"5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128)}]


def googlenet_12():
    """Szegedy et al. 2014, with local response norms; pools of stride 2 are padded at their ends only."""
    side = Net.side or 224
    n = ZooNet("googlenet-12", 12, [("data_0", TensorProto.FLOAT, [1, 3, side, side])])

    def conv(x, c_in, c_out, k, name, s=1):
        n.own_name = name
        x = n.conv(x, c_in, c_out, k, s, bias=True)
        return n.named(f"{name}_relu", "Relu", x)

    def pool(x, name):
        return n.named(name, "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 2, 2])

    def norm(x, name):
        return n.named(name, "LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)

    x = norm(pool(conv("data_0", 3, 64, 7, "conv1", 2), "pool1"), "norm1")
    x = pool(norm(conv(conv(x, 64, 64, 1, "conv2_reduce"), 64, 192, 3, "conv2"), "norm2"), "pool2")
    c = 192
    for i, stage in enumerate(INCEPTIONS):
        for name, (a, b1, b2, c1, c2, d) in stage.items():
            at = f"inception_{name}_"
            pooled = n.named(at + "pool", "MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
            parts = [conv(x, c, a, 1, at + "1x1"), conv(conv(x, c, b1, 1, at + "3x3_reduce"), b1, b2, 3, at + "3x3"),
                     conv(conv(x, c, c1, 1, at + "5x5_reduce"), c1, c2, 5, at + "5x5"), conv(pooled, c, d, 1, at + "pool_proj")]
            x, c = n.named(at + "output", "Concat", *parts, axis=1), a + b2 + c2 + d
        if i < 2:
            x = pool(x, f"pool{i + 3}")
    size = 2 if Net.side else 7
    x = n.named("pool5", "AveragePool", x, kernel_shape=[size, size])
    x = n.named("reshape", "Reshape", n.named("dropout", "Dropout", x), n.ints(1, n.channels(1024)))
    n.own_name = "classifier"
    return n.model(n.named("prob", "Softmax", n.fc(x, 1024, 1000), axis=1))


def mobilenetv2_10():
    """105 nodes: batch norms folded, Conv and Clip apart, the size for the classifier read from the tensor."""
    side = Net.side or 224
    n = ZooNet("mobilenetv2-10", 10, [("input", TensorProto.FLOAT, ["batch", 3, side, side])])

    def clip(x):
        return n.op("Clip", x, min=0.0, max=6.0)

    x, c = clip(n.conv("input", 3, 32, 3, 2, bias=True)), 32
    for expand, out, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                                       (6, 320, 1, 1)):
        for i in range(count):
            wide = c * expand
            y = x if expand == 1 else clip(n.conv(x, c, wide, 1, bias=True))
            y = clip(n.conv(y, wide, wide, 3, stride if i == 0 else 1, g=wide, bias=True))
            y = n.conv(y, wide, out, 1, bias=True)
            x, c = (n.op("Add", x, y) if i else y), out
    x = clip(n.conv(x, 320, 1280, 1, bias=True))
    pooled, shape = n.op("GlobalAveragePool", x), n.op("Shape", x)
    batch = n.op("Gather", shape, n.op("Constant", value=n.tensor(np.array(0, np.int64))), axis=0)
    sizes = n.op("Concat", n.op("Unsqueeze", batch, axes=[0]), n.ints(-1), axis=0)
    return n.model(n.fc(n.op("Reshape", pooled, sizes), 1280, 1000))


def cifar_resnet(name, blocks):
    """He et al. 2015, section 4.2: shortcuts without parameters, which drop every second pixel and pad the channels with zeros."""
    n = image_net(name, 32)
    x, c = n.conv_bn("image", 3, 16, 3), 16
    for out in (16, 32, 64):
        for i in range(blocks):
            stride = 2 if out != c else 1
            y = n.bn(n.conv(n.conv_bn(x, c, out, 3, stride), out, out, 3), out)
            if out != c:
                half = n.op("Slice", x, n.ints(0, 0), n.ints(1 << 30, 1 << 30), n.ints(2, 3), n.ints(2, 2))
                more = (n.channels(out) - n.channels(c)) // 2
                x = n.op("Pad", half, n.ints(0, more, 0, 0, 0, more, 0, 0))
            x, c = n.act(n.op("Add", x, y), "Relu"), out
    return n.model(n.head(x, 64, 10))
