"""Inception v3, ShuffleNet v2, MobileNet v1 and v3."""

import numpy as np
from onnx import TensorProto

from net import Net, image_net


def inception_v3():
    side = 96 if Net.side else 299
    n = Net("inception_v3", [("image", TensorProto.FLOAT, ["batch", 3, side, side])])

    def average(x, c, out):
        return n.conv_bn(n.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=1), c, out, 1)

    def chain(x, c, *layers, s=1):
        """Layers of (channels, kernel); the last one has stride s, and then no padding."""
        for i, (out, k) in enumerate(layers):
            last = s > 1 and i == len(layers) - 1
            x, c = n.conv_bn(x, c, out, k, s if last else 1, p=0 if last else None), out
        return x

    def join(*branches):
        return n.op("Concat", *branches, axis=1)

    x = n.conv_bn("image", 3, 32, 3, 2, p=0)
    x = n.conv_bn(n.conv_bn(x, 32, 32, 3, p=0), 32, 64, 3)
    x = n.conv_bn(n.conv_bn(n.pool(x, 3, 2), 64, 80, 1), 80, 192, 3, p=0)
    x, c = n.pool(x, 3, 2), 192
    for features in (32, 64, 64):
        x = join(chain(x, c, (64, 1)), chain(x, c, (48, 1), (64, 5)), chain(x, c, (64, 1), (96, 3), (96, 3)), average(x, c, features))
        c = 224 + features
    x, c = join(chain(x, c, (384, 3), s=2), chain(x, c, (64, 1), (96, 3), (96, 3), s=2), n.pool(x, 3, 2)), 768
    for w in (128, 160, 160, 192):
        long = chain(x, c, (w, 1), (w, (7, 1)), (w, (1, 7)), (w, (7, 1)), (192, (1, 7)))
        x = join(chain(x, c, (192, 1)), chain(x, c, (w, 1), (w, (1, 7)), (192, (7, 1))), long, average(x, c, 192))
    x = join(chain(x, c, (192, 1), (320, 3), s=2), chain(x, c, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3), s=2), n.pool(x, 3, 2))
    c = 1280
    for _ in range(2):
        short, deep = chain(x, c, (384, 1)), chain(x, c, (448, 1), (384, 3))
        wide = [n.conv_bn(y, 384, 384, k) for y in (short, deep) for k in ((1, 3), (3, 1))]
        x, c = join(chain(x, c, (320, 1)), join(*wide[:2]), join(*wide[2:]), average(x, c, 192)), 2048
    return n.model(n.head(x, c))


def shufflenet_v2():
    """Channel shuffle as PyTorch exports it with a dynamic batch: the sizes are read from the tensor."""
    n = image_net("shufflenet_v2_x1_0")
    side = (Net.side or 224) // 4

    def shuffle(x, c, size):
        batch = n.op("Unsqueeze", n.op("Gather", n.op("Shape", x), n.constant(np.array(0, np.int64)), axis=0), n.ints(0))
        groups = n.op("Concat", batch, n.ints(2), n.ints(n.channels(c) // 2), n.ints(size), n.ints(size), axis=0)
        x = n.op("Transpose", n.op("Reshape", x, groups), perm=[0, 2, 1, 3, 4])
        return n.op("Reshape", x, n.op("Concat", batch, n.ints(-1), n.ints(size), n.ints(size), axis=0))

    def branch(x, c, half, s):
        x = n.conv_bn(n.conv_bn(x, c, half, 1), half, half, 3, s, half, act=None)
        return n.conv_bn(x, half, half, 1)

    x, c = n.pool(n.conv_bn("image", 3, 32 if Net.side else 24, 3, 2), 3, 2, 1), 32 if Net.side else 24
    for width, count in zip((128, 256, 512) if Net.side else (116, 232, 464), (4, 8, 4)):
        half, side = width // 2, side // 2
        left = n.conv_bn(n.conv_bn(x, c, c, 3, 2, c, act=None), c, half, 1)
        x, c = shuffle(n.op("Concat", left, branch(x, c, half, 2), axis=1), width, side), width
        for _ in range(count - 1):
            kept, rest = n.ops("Split", 2, x, n.ints(n.channels(half), n.channels(half)), axis=1)
            x = shuffle(n.op("Concat", kept, branch(rest, half, half, 1), axis=1), width, side)
    x = n.conv_bn(x, c, 1024, 1)
    return n.model(n.fc(n.op("ReduceMean", x, axes=[2, 3], keepdims=0), 1024, 1000))


MOBILENET_V1 = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [(1024, 2), (1024, 1)]


def mobilenet_v1():
    n = image_net("mobilenet_v1")
    x, c = n.conv_bn("image", 3, 32, 3, 2), 32
    for out, s in MOBILENET_V1:
        x, c = n.conv_bn(n.conv_bn(x, c, c, 3, s, c), c, out, 1), out
    return n.model(n.head(x, c))


def mobilenet_v1_nhwc():
    """As tf2onnx writes it before it optimises: channels last outside, a transpose on either side of each convolution, SAME padding."""
    side = Net.side or 224
    n = Net("mobilenet_v1_nhwc", [("input:0", TensorProto.FLOAT, ["unk__0", side, side, 3])])

    def layer(x, c_in, c_out, k, s=1, g=1):
        g, c_in, c_out = (n.channels(g) if g > 1 else 1), n.channels(c_in), n.channels(c_out)
        x = n.op("Transpose", x, perm=[0, 3, 1, 2])
        x = n.op("Conv", x, n.weight((c_out, c_in // g, k, k), c_in // g * k * k), kernel_shape=[k, k], strides=[s, s], group=g,
                 auto_pad="SAME_UPPER", dilations=[1, 1])
        x = n.op("Transpose", x, perm=[0, 2, 3, 1])
        x = n.op("Add", n.op("Mul", x, n.vector(c_out, 0.5, 1.0)), n.vector(c_out, -0.1, 0.1))
        return n.op("Min", n.op("Relu", x), n.constant(np.float32(6)))

    x, c = layer("input:0", 3, 32, 3, 2), 32
    for out, s in MOBILENET_V1:
        x, c = layer(layer(x, c, c, 3, s, c), c, out, 1), out
    x = n.op("ReduceMean", x, axes=[1, 2], keepdims=1)
    x = n.op("Squeeze", x, n.ints(1, 2))
    x = n.op("Add", n.op("MatMul", x, n.weight((n.channels(c), 101), n.channels(c))), n.vector(101, -0.1, 0.1))
    return n.model(n.op("Softmax", x, axis=-1))


def mobilenet_v3(name, layers, last, wide, fused):
    """`fused`: HardSwish as an operator (opset 14 and newer), else as older exporters spell it."""
    n = image_net(name)

    def hard_swish(x):
        if fused:
            return n.op("HardSwish", x)
        y = n.op("Clip", n.op("Add", x, n.constant(np.float32(3))), n.constant(np.float32(0)), n.constant(np.float32(6)))
        return n.op("Div", n.op("Mul", x, y), n.constant(np.float32(6)))

    def act(x, kind):
        return hard_swish(x) if kind == "HS" else n.act(x, kind and "Relu")

    def conv(x, c, out, k, s, g, kind):
        return act(n.conv_bn(x, c, out, k, s, g, act=None), kind)

    x, c = conv("image", 3, 16, 3, 2, 1, "HS"), 16
    for k, mid, out, squeeze, kind, s in layers:
        y = conv(x, c, mid, 1, 1, 1, kind) if mid != c else x
        y = conv(y, mid, mid, k, s, mid, kind)
        if squeeze:
            narrow = max(8, (mid // 4 + 4) // 8 * 8)
            g = n.act(n.conv(n.op("GlobalAveragePool", y), mid, narrow, 1, bias=True), "Relu")
            y = n.op("Mul", n.op("HardSigmoid", n.conv(g, narrow, mid, 1, bias=True), alpha=1 / 6), y)
        y = n.conv_bn(y, mid, out, 1, act=None)
        x, c = (n.op("Add", y, x) if s == 1 and c == out else y), out
    x = n.op("Flatten", n.op("GlobalAveragePool", conv(x, c, last, 1, 1, 1, "HS")))
    return n.model(n.fc(hard_swish(n.fc(x, last, wide)), wide, 1000))


def mobilenet_v3_large():
    return mobilenet_v3("mobilenet_v3_large", [
        (3, 16, 16, 0, "RE", 1), (3, 64, 24, 0, "RE", 2), (3, 72, 24, 0, "RE", 1), (5, 72, 40, 1, "RE", 2), (5, 120, 40, 1, "RE", 1),
        (5, 120, 40, 1, "RE", 1), (3, 240, 80, 0, "HS", 2), (3, 200, 80, 0, "HS", 1), (3, 184, 80, 0, "HS", 1), (3, 184, 80, 0, "HS", 1),
        (3, 480, 112, 1, "HS", 1), (3, 672, 112, 1, "HS", 1), (5, 672, 160, 1, "HS", 2), (5, 960, 160, 1, "HS", 1),
        (5, 960, 160, 1, "HS", 1)], 960, 1280, True)


def mobilenet_v3_small():
    return mobilenet_v3("mobilenet_v3_small", [
        (3, 16, 16, 1, "RE", 2), (3, 72, 24, 0, "RE", 2), (3, 88, 24, 0, "RE", 1), (5, 96, 40, 1, "HS", 2), (5, 240, 40, 1, "HS", 1),
        (5, 240, 40, 1, "HS", 1), (5, 120, 48, 1, "HS", 1), (5, 144, 48, 1, "HS", 1), (5, 288, 96, 1, "HS", 2), (5, 576, 96, 1, "HS", 1),
        (5, 576, 96, 1, "HS", 1)], 576, 1024, False)
