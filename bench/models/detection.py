"""U-Net (transposed convolution, or resize) and YOLO (v3-tiny, v5n), with the decoding of boxes in the graph."""

import numpy as np

from net import Net, image_net


def double(n, x, c, out):
    return n.conv_bn(n.conv_bn(x, c, out, 3), out, out, 3)


def encoder(n):
    x, c, skips = double(n, "image", 3, 64), 64, []
    for _ in range(4):
        skips.append((x, c))
        x, c = double(n, n.pool(x, 2, 2), c, 2 * c), 2 * c
    return x, c, skips


def unet():
    n = image_net("unet", 256)
    x, c, skips = encoder(n)
    for skip, width in reversed(skips):
        w = n.weight((n.channels(c), n.channels(width), 2, 2), n.channels(c))
        x = n.op("ConvTranspose", x, w, n.vector(n.channels(width), -0.1, 0.1), kernel_shape=[2, 2], strides=[2, 2])
        x, c = double(n, n.op("Concat", skip, x, axis=1), 2 * width, width), width
    return n.model(n.conv(x, c, 2, 1, bias=True))


def unet_resize():
    """Bilinear, aligned corners, and a Pad to the skip's size of (here) nothing, as PyTorch exports F.pad."""
    n = image_net("unet_resize", 256)
    x, c, skips = encoder(n)
    for skip, width in reversed(skips):
        x = n.op("Resize", x, "", n.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear", coordinate_transformation_mode="align_corners")
        x = n.op("Pad", x, n.ints(0, 0, 0, 0, 0, 0, 0, 0), n.constant(np.float32(0)), mode="constant")
        x, c = double(n, n.op("Concat", skip, x, axis=1), c + width, width), width
    return n.model(n.op("Sigmoid", n.conv(x, c, 2, 1, bias=True)))


def upsample(n, x):
    return n.op("Resize", x, "", n.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")


def cells(n, x, size):
    """[batch, 255, size, size] -> [batch, 3, size, size, 85], as both write it."""
    return n.op("Transpose", n.op("Reshape", x, n.ints(-1, 3, 85, size, size)), perm=[0, 1, 3, 4, 2])


def grid(size):
    y, x = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    return np.stack([x, y], -1).astype(np.float32)[None, None]


def part(n, x, begin, end):
    return n.op("Slice", x, n.ints(begin), n.ints(end), n.ints(4))


def yolov3_tiny():
    n, side = image_net("yolov3_tiny", 416), Net.side or 416

    def conv(x, c, out, k):
        return n.conv_bn(x, c, out, k, act="LeakyRelu")

    def head(x, c, size, anchors):
        y = cells(n, n.conv(x, c, 255, 1, bias=True, exact=True), size)
        stride = np.float32(side // size)
        xy = n.op("Mul", n.op("Add", n.op("Sigmoid", part(n, y, 0, 2)), n.constant(grid(size))), n.constant(stride))
        sizes = n.constant(np.array(anchors, np.float32).reshape(1, 3, 1, 1, 2))
        wh = n.op("Mul", n.op("Exp", n.op("Mul", part(n, y, 2, 4), n.constant(np.float32(0.25)))), sizes)
        rest = n.op("Sigmoid", part(n, y, 4, 2**31 - 1))
        return n.op("Reshape", n.op("Concat", xy, wh, rest, axis=-1), n.ints(0, -1, 85))

    x, c = conv("image", 3, 16, 3), 16
    for out in (32, 64, 128, 256):
        x, c = conv(n.pool(x, 2, 2), c, out, 3), out
    route = x
    x = conv(n.pool(x, 2, 2), 256, 512, 3)
    x = n.op("Pad", x, n.ints(0, 0, 0, 0, 0, 0, 1, 1), n.constant(np.float32(0)))
    x = conv(conv(n.pool(x, 2, 1), 512, 1024, 3), 1024, 256, 1)
    coarse = head(conv(x, 256, 512, 3), 512, side // 32, [(81, 82), (135, 169), (344, 319)])
    x = n.op("Concat", upsample(n, conv(x, 256, 128, 1)), route, axis=1)
    fine = head(conv(x, 384, 256, 3), 256, side // 16, [(10, 14), (23, 27), (37, 58)])
    return n.model(n.op("Concat", coarse, fine, axis=1))


def yolov5n():
    n, side = image_net("yolov5n", 640), Net.side or 640

    def conv(x, c, out, k=1, s=1, p=None):
        return n.conv_bn(x, c, out, k, s, act="Silu", p=p)

    def c3(x, c, out, count=1, shortcut=True):
        half = out // 2
        y = conv(x, c, half)
        for _ in range(count):
            z = conv(conv(y, half, half), half, half, 3)
            y = n.op("Add", y, z) if shortcut else z
        return conv(n.op("Concat", y, conv(x, c, half), axis=1), out, out)

    def detect(x, c, size, anchors):
        y = n.op("Sigmoid", cells(n, n.conv(x, c, 255, 1, bias=True, exact=True), size))
        xy, wh, rest = n.ops("Split", 3, y, n.ints(2, 2, 81), axis=4)
        xy = n.op("Mul", n.op("Add", n.op("Mul", xy, n.constant(np.float32(2))), n.constant(grid(size) - 0.5)), n.constant(np.float32(side // size)))
        wh = n.op("Mul", n.op("Pow", n.op("Mul", wh, n.constant(np.float32(2))), n.constant(np.float32(2))),
                  n.constant(np.broadcast_to(np.array(anchors, np.float32).reshape(1, 3, 1, 1, 2), (1, 3, size, size, 2))))
        return n.op("Reshape", n.op("Concat", xy, wh, rest, axis=4), n.ints(-1, 3 * size * size, 85))

    x = conv(conv("image", 3, 16, 6, 2, 2), 16, 32, 3, 2)
    x = conv(c3(x, 32, 32), 32, 64, 3, 2)
    small = c3(x, 64, 64, 2)
    middle = c3(conv(small, 64, 128, 3, 2), 128, 128, 3)
    x = conv(c3(conv(middle, 128, 256, 3, 2), 256, 256), 256, 128)
    pools = [x]
    for _ in range(3):
        pools.append(n.pool(pools[-1], 5, 1, 2))
    deep = conv(conv(n.op("Concat", *pools, axis=1), 512, 256), 256, 128)
    up = conv(c3(n.op("Concat", upsample(n, deep), middle, axis=1), 256, 128, 1, False), 128, 64)
    p3 = c3(n.op("Concat", upsample(n, up), small, axis=1), 128, 64, 1, False)
    p4 = c3(n.op("Concat", conv(p3, 64, 64, 3, 2), up, axis=1), 128, 128, 1, False)
    p5 = c3(n.op("Concat", conv(p4, 128, 128, 3, 2), deep, axis=1), 256, 256, 1, False)
    levels = [detect(p3, 64, side // 8, [(10, 13), (16, 30), (33, 23)]), detect(p4, 128, side // 16, [(30, 61), (62, 45), (59, 119)]),
              detect(p5, 256, side // 32, [(116, 90), (156, 198), (373, 326)])]
    return n.model(n.op("Concat", *levels, axis=1))
