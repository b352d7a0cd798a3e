"""A few small models for each layer and function: NAME -> [build(K) -> model], where K is Keras 3 or TensorFlow's Keras 2.

Names are those of keras_layers.def. A builder that one of the two has no layer for raises AttributeError, and is left out there.
"""


def one(shape, make, dtype="float32"):
    """A model of one layer: make(K.layers) gives it."""

    def build(K):
        given = K.Input(shape, dtype=dtype)
        return K.Model(given, make(K.layers)(given))

    return build


def many(shapes, make):
    """A model of one layer that takes a list."""

    def build(K):
        given = [K.Input(shape) for shape in shapes]
        return K.Model(given, make(K.layers)(given))

    return build


def whole(shape, make):
    """make(K, input) gives outputs."""

    def build(K):
        given = K.Input(shape)
        return K.Model(given, make(K, given))

    return build


IMAGE, SERIES, VOLUME = (7, 6, 4), (9, 4), (5, 4, 6, 2)


def convolutions(name, shape, **more):
    size = {4: 3, 3: 3, 2: 3}[len(shape)]
    filters = {} if name.startswith("Depthwise") else {"filters": 4}
    kernel = {"kernel_size": size}
    plain = lambda L: getattr(L, name)(**filters, **kernel, **more)
    same = lambda L: getattr(L, name)(**filters, **kernel, padding="same", strides=2, activation="relu", **more)
    dilated = lambda L: getattr(L, name)(**filters, **kernel, padding="same", dilation_rate=2, use_bias=False, **more)
    return [one(shape, plain), one(shape, same), one(shape, dilated)]


def transposed(name, shape):
    def layer(**more):
        return one(shape, lambda L: getattr(L, name)(3, 3, **more))

    cases = [layer(), layer(strides=2), layer(strides=2, padding="same"), layer(strides=2, padding="same", output_padding=1)]
    cases.append(one(shape, lambda L: getattr(L, name)(3, 2, strides=3, padding="same", activation="tanh")))
    return cases + [one(shape, lambda L: getattr(L, name)(3, 2, strides=3))]


def pools(name, shape):
    layer = lambda **more: one(shape, lambda L: getattr(L, name)(**more))
    return [layer(), layer(pool_size=3, strides=2, padding="same"), layer(pool_size=2, strides=1)]


def recurrent(name):
    layer = lambda **more: one((5, 3), lambda L: getattr(L, name)(4, **more))
    cases = [layer(), layer(return_sequences=True), layer(return_sequences=True, go_backwards=True), layer(go_backwards=True),
             layer(use_bias=False, activation="softsign", return_sequences=True), layer(activation="relu")]
    cases.append(whole((5, 3), lambda K, x: getattr(K.layers, name)(4, return_state=True)(x)))
    masked = lambda K, x: getattr(K.layers, name)(4, return_sequences=True)(K.layers.Masking(0.0)(x * K.layers.ReLU()(x)))
    cases.append(whole((5, 3), lambda K, x: getattr(K.layers, name)(4, return_sequences=True)(
        K.layers.Masking(0.0)(K.layers.ReLU()(K.layers.ZeroPadding1D(2)(x))))))
    if name == "GRU":
        cases.append(layer(reset_after=False, return_sequences=True))
        cases.append(layer(reset_after=False, activation="elu"))
    return cases + ([whole((5, 3), masked)] if name == "LSTM" else [])


def activations(names):
    return [one((3, 5), lambda L, name=name: L.Activation(name)) for name in names]


def functions(K):
    """TensorFlow's functions for Keras 2, Keras' own for Keras 3."""
    if hasattr(K, "ops"):
        return K.ops, None
    import tensorflow
    return None, tensorflow


def function(three, two, shape=(4, 6)):
    """three(ops, x) with Keras 3's functions, two(tf, x) with TensorFlow's."""

    def build(K):
        ops, tf = functions(K)
        given = K.Input(shape)
        if (three if ops else two) is None:
            raise AttributeError("no such function")
        return K.Model(given, three(ops, given) if ops else two(tf, given))

    return build


def nested(K):
    inner_input = K.Input((6,), name="inner_input")
    x = K.layers.BatchNormalization(name="norm")(K.layers.Dense(6, name="first")(inner_input))
    inner = K.Model(inner_input, [K.layers.Dense(3, name="second")(x), x], name="inner")
    frozen = K.Sequential([K.Input((3,)), K.layers.Dense(6), K.layers.BatchNormalization()], name="frozen")
    frozen.trainable = False
    given = K.Input((6,))
    a, b = inner(given)
    c, d = inner(K.layers.Add()([b, frozen(a)]))
    shared = K.layers.Dense(3, name="shared")
    return K.Model(given, [shared(shared(c)), d, frozen(c)])


def sequential(K):
    return K.Sequential([K.Input((8, 8, 3)), K.layers.Conv2D(4, 3, activation="relu"), K.layers.MaxPooling2D(), K.layers.Flatten(),
                         K.layers.Dropout(0.5), K.layers.Dense(5, activation="softmax")])


def directions(K, x, merge="concat", **more):
    return K.layers.Bidirectional(K.layers.LSTM(3, **more), merge_mode=merge)(x)


def attention(K, x, **more):
    return K.layers.MultiHeadAttention(2, 3, **more)(x, K.layers.Dense(5)(x))


def rnn_states(K, x):
    y, h, c = K.layers.LSTM(3, return_state=True, return_sequences=True)(x)
    return K.layers.LSTM(3)(y, initial_state=[h, c])


CASES = {
    "Activation": activations(["elu", "exponential", "gelu", "hard_sigmoid", "linear", "mish", "relu", "selu", "sigmoid", "softmax", "softplus",
                               "softsign", "swish", "tanh"])
    + [one((3, 5), lambda L: L.Activation("relu6")), one((3, 5), lambda L: L.Activation("log_softmax")),
       one((3, 5), lambda L: L.Activation("leaky_relu")), one((3, 5), lambda L: L.Activation("hard_silu")),
       one((3, 5), lambda L: L.Dense(4, activation=L.LeakyReLU(0.1)))],
    "ActivityRegularization": [one((4,), lambda L: L.ActivityRegularization(0.1))],
    "Add": [many([(3, 4), (3, 4), (3, 4)], lambda L: L.Add()), many([(3, 4), (3, 1)], lambda L: L.Add())],
    "AdditiveAttention": [many([(3, 4), (5, 4)], lambda L: L.AdditiveAttention())],
    "AlphaDropout": [one((4,), lambda L: L.AlphaDropout(0.1))],
    "Attention": [many([(3, 4), (5, 4)], lambda L: L.Attention()), many([(3, 4), (5, 4), (5, 4)], lambda L: L.Attention(use_scale=True)),
                  many([(3, 4), (5, 4)], lambda L: L.Attention(score_mode="concat"))],
    "Average": [many([(3, 4), (3, 4), (3, 4)], lambda L: L.Average())],
    "AveragePooling1D": pools("AveragePooling1D", SERIES),
    "AveragePooling2D": pools("AveragePooling2D", IMAGE),
    "AveragePooling3D": pools("AveragePooling3D", VOLUME),
    "BatchNormalization": [one(IMAGE, lambda L: L.BatchNormalization()), one((5,), lambda L: L.BatchNormalization(scale=False, epsilon=1e-2)),
                           one(IMAGE, lambda L: L.BatchNormalization(axis=1, center=False)), one(SERIES, lambda L: L.BatchNormalization())],
    "Bidirectional": [whole((5, 3), directions), whole((5, 3), lambda K, x: directions(K, x, return_sequences=True)),
                      whole((5, 3), lambda K, x: directions(K, x, merge="sum", return_sequences=True)),
                      whole((5, 3), lambda K, x: directions(K, x, merge="ave")),
                      whole((5, 3), lambda K, x: directions(K, x, merge=None, return_sequences=True)),
                      whole((5, 3), lambda K, x: K.layers.Bidirectional(K.layers.GRU(3, return_state=True))(x))],
    "CenterCrop": [one(IMAGE, lambda L: L.CenterCrop(4, 3))],
    "Concatenate": [many([(3, 4), (3, 2)], lambda L: L.Concatenate()), many([(3, 4), (2, 4)], lambda L: L.Concatenate(axis=1))],
    "Conv1D": convolutions("Conv1D", SERIES) + [one(SERIES, lambda L: L.Conv1D(4, 3, padding="causal", dilation_rate=2))],
    "Conv1DTranspose": transposed("Conv1DTranspose", SERIES),
    "Conv2D": convolutions("Conv2D", IMAGE) + [one(IMAGE, lambda L: L.Conv2D(6, (3, 2), strides=(1, 2), groups=2)),
                                               one(IMAGE, lambda L: L.Conv2D(4, 1, activation="softmax"))],
    "Conv2DTranspose": transposed("Conv2DTranspose", IMAGE),
    "Conv3D": convolutions("Conv3D", VOLUME),
    "Conv3DTranspose": transposed("Conv3DTranspose", (3, 4, 2, 2))[:3],
    "ConvLSTM1D": [one((3, 6, 2), lambda L: L.ConvLSTM1D(3, 3, return_sequences=True, padding="same"))],
    "ConvLSTM2D": [one((3, 6, 5, 2), lambda L: L.ConvLSTM2D(3, 3, return_sequences=True)), one((3, 6, 5, 2), lambda L: L.ConvLSTM2D(2, 3, padding="same"))],
    "ConvLSTM3D": [one((2, 4, 3, 4, 2), lambda L: L.ConvLSTM3D(2, 3, padding="same"))],
    "Cropping1D": [one(SERIES, lambda L: L.Cropping1D((1, 2)))],
    "Cropping2D": [one(IMAGE, lambda L: L.Cropping2D(((1, 0), (2, 1)))), one(IMAGE, lambda L: L.Cropping2D(1))],
    "Cropping3D": [one(VOLUME, lambda L: L.Cropping3D((1, 1, 2)))],
    "Dense": [one((5,), lambda L: L.Dense(3, activation="relu")), one((4, 5), lambda L: L.Dense(3, use_bias=False))],
    "DepthwiseConv1D": convolutions("DepthwiseConv1D", SERIES, depth_multiplier=2)[:2],
    "DepthwiseConv2D": convolutions("DepthwiseConv2D", IMAGE, depth_multiplier=2),
    "Discretization": [one((5,), lambda L: L.Discretization([-0.5, 0.0, 0.25]))],
    "Dot": [many([(3, 4), (5, 4)], lambda L: L.Dot(axes=2)), many([(4,), (4,)], lambda L: L.Dot(axes=1, normalize=True)),
            many([(3, 4), (4, 5)], lambda L: L.Dot(axes=(2, 1)))],
    "Dropout": [one((4,), lambda L: L.Dropout(0.1))],
    "ELU": [one((4,), lambda L: L.ELU(0.5))],
    "EinsumDense": [one((3, 4), lambda L: L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d", activation="relu")),
                    one((3, 4), lambda L: L.EinsumDense("...x,xy->...y", output_shape=5))],
    "Embedding": [one((5,), lambda L: L.Embedding(7, 3), "int32"),
                  whole((5,), lambda K, x: K.layers.LSTM(3)(K.layers.Embedding(7, 3, mask_zero=True)(K.layers.ReLU()(x * 4))))],
    "Flatten": [one(IMAGE, lambda L: L.Flatten()), one((), lambda L: L.Flatten())],
    "GRU": recurrent("GRU"),
    "GaussianDropout": [one((4,), lambda L: L.GaussianDropout(0.1))],
    "GaussianNoise": [one((4,), lambda L: L.GaussianNoise(0.1))],
    "GlobalAveragePooling1D": [one(SERIES, lambda L: L.GlobalAveragePooling1D()),
                               whole((5, 3), lambda K, x: K.layers.GlobalAveragePooling1D()(K.layers.Masking(0.0)(K.layers.ZeroPadding1D(2)(x))))],
    "GlobalAveragePooling2D": [one(IMAGE, lambda L: L.GlobalAveragePooling2D(keepdims=True))],
    "GlobalAveragePooling3D": [one(VOLUME, lambda L: L.GlobalAveragePooling3D())],
    "GlobalMaxPooling1D": [one(SERIES, lambda L: L.GlobalMaxPooling1D())],
    "GlobalMaxPooling2D": [one(IMAGE, lambda L: L.GlobalMaxPooling2D())],
    "GlobalMaxPooling3D": [one(VOLUME, lambda L: L.GlobalMaxPooling3D())],
    "GroupNormalization": [one(IMAGE, lambda L: L.GroupNormalization(2)), one(IMAGE, lambda L: L.GroupNormalization(-1, scale=False))],
    "GroupedQueryAttention": [],  # what .h5 files call it
    "GroupQueryAttention": [whole((4, 6), lambda K, x: K.layers.GroupQueryAttention(3, 4, 2)(x, x))],
    "Identity": [one((4,), lambda L: L.Identity())],
    "LSTM": recurrent("LSTM") + [whole((5, 3), rnn_states)],
    "LayerNormalization": [one((3, 4), lambda L: L.LayerNormalization()), one((3, 4), lambda L: L.LayerNormalization(axis=[1, 2], center=False)),
                           one((3, 4), lambda L: L.LayerNormalization(axis=1)), one((3, 4), lambda L: L.LayerNormalization(rms_scaling=True))],
    "LeakyReLU": [one((4,), lambda L: L.LeakyReLU(0.2)), one((4,), lambda L: L.LeakyReLU())],
    "Masking": [one((4, 3), lambda L: L.Masking(0.5))],
    "MaxPooling1D": pools("MaxPooling1D", SERIES),
    "MaxPooling2D": pools("MaxPooling2D", IMAGE),
    "MaxPooling3D": pools("MaxPooling3D", VOLUME),
    "Maximum": [many([(3, 4), (3, 4)], lambda L: L.Maximum())],
    "Minimum": [many([(3, 4), (3, 4)], lambda L: L.Minimum())],
    "MultiHeadAttention": [whole((4, 6), attention), whole((4, 6), lambda K, x: attention(K, x, value_dim=5, use_bias=False, output_shape=7)),
                           whole((4, 6), lambda K, x: K.layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)),
                           whole((4, 6), lambda K, x: K.layers.MultiHeadAttention(2, 3)(x, value=x, return_attention_scores=True))],
    "Multiply": [many([(3, 4), (3, 4)], lambda L: L.Multiply())],
    "Normalization": [one((3, 4), lambda L: L.Normalization(mean=[1.0, 2.0, 3.0, 0.5], variance=[1.0, 4.0, 0.5, 2.0])),
                      one((3, 4), lambda L: L.Normalization(mean=0.5, variance=2.0, axis=None))],
    "PReLU": [one((3, 4), lambda L: L.PReLU()), one(IMAGE, lambda L: L.PReLU(shared_axes=[1, 2]))],
    "Permute": [one((3, 4, 2), lambda L: L.Permute((3, 1, 2)))],
    "RMSNormalization": [one((3, 4), lambda L: L.RMSNormalization())],
    "RNN": [one((5, 3), lambda L: L.RNN(L.GRUCell(4))), one((5, 3), lambda L: L.RNN(L.LSTMCell(4), return_sequences=True))],
    "RandomBrightness": [one((4, 4, 3), lambda L: L.RandomBrightness(0.1))],
    "RandomContrast": [one((4, 4, 3), lambda L: L.RandomContrast(0.1))],
    "RandomFlip": [one((4, 4, 3), lambda L: L.RandomFlip())],
    "RandomHeight": [one((4, 4, 3), lambda L: L.RandomHeight(0.1))],
    "RandomRotation": [one((4, 4, 3), lambda L: L.RandomRotation(0.1))],
    "RandomTranslation": [one((4, 4, 3), lambda L: L.RandomTranslation(0.1, 0.1))],
    "RandomWidth": [one((4, 4, 3), lambda L: L.RandomWidth(0.1))],
    "RandomZoom": [one((4, 4, 3), lambda L: L.RandomZoom(0.1))],
    "ReLU": [one((4,), lambda L: L.ReLU()), one((4,), lambda L: L.ReLU(max_value=0.5)),
             one((4,), lambda L: L.ReLU(max_value=0.75, negative_slope=0.1, threshold=0.25))],
    "RepeatVector": [one((4,), lambda L: L.RepeatVector(3))],
    "Rescaling": [one((4,), lambda L: L.Rescaling(1 / 127.5, offset=-1)), one((4, 3), lambda L: L.Rescaling([0.5, 1.0, 2.0]))],
    "Reshape": [one((4, 6), lambda L: L.Reshape((3, 8))), one((4, 6), lambda L: L.Reshape((-1, 2, 4)))],
    "Resizing": [one(IMAGE, lambda L: L.Resizing(4, 9)), one(IMAGE, lambda L: L.Resizing(11, 4, interpolation="nearest"))],
    "SeparableConv1D": convolutions("SeparableConv1D", SERIES, depth_multiplier=2)[:2],
    "SeparableConv2D": convolutions("SeparableConv2D", IMAGE, depth_multiplier=2),
    "SimpleRNN": recurrent("SimpleRNN"),
    "Softmax": [one((3, 4), lambda L: L.Softmax()), one((3, 4), lambda L: L.Softmax(axis=[1, 2]))],
    "SpatialDropout1D": [one(SERIES, lambda L: L.SpatialDropout1D(0.1))],
    "SpatialDropout2D": [one(IMAGE, lambda L: L.SpatialDropout2D(0.1))],
    "SpatialDropout3D": [one(VOLUME, lambda L: L.SpatialDropout3D(0.1))],
    "Subtract": [many([(3, 4), (3, 4)], lambda L: L.Subtract())],
    "ThresholdedReLU": [one((4,), lambda L: L.ThresholdedReLU(0.3))],
    "TimeDistributed": [one((3, 7, 6, 2), lambda L: L.TimeDistributed(L.Conv2D(3, 3))),
                        one((3, 5), lambda L: L.TimeDistributed(L.Dense(4, activation="tanh")))],
    "UnitNormalization": [one((3, 4), lambda L: L.UnitNormalization())],
    "UpSampling1D": [one(SERIES, lambda L: L.UpSampling1D(3))],
    "UpSampling2D": [one(IMAGE, lambda L: L.UpSampling2D((2, 3))), one(IMAGE, lambda L: L.UpSampling2D(2, interpolation="bilinear"))],
    "UpSampling3D": [one(VOLUME, lambda L: L.UpSampling3D(2))],
    "ZeroPadding1D": [one(SERIES, lambda L: L.ZeroPadding1D((1, 2)))],
    "ZeroPadding2D": [one(IMAGE, lambda L: L.ZeroPadding2D(((1, 0), (2, 1)))), one(IMAGE, lambda L: L.ZeroPadding2D(2))],
    "ZeroPadding3D": [one(VOLUME, lambda L: L.ZeroPadding3D((1, 0, 2)))],
    "models": [sequential, nested],
    "functions": [
        function(lambda o, x: 1.0 - x * 2.0 + x / 3.0, lambda t, x: 1.0 - x * 2.0 + x / 3.0),
        function(lambda o, x: o.maximum(x, 0.1) ** 2, lambda t, x: t.maximum(x, 0.1) ** 2),
        function(lambda o, x: [x[:, 0, 1:3], x[..., None], x[:, ::-1], x[:, -1], x[:, :, 1::2]],
                 lambda t, x: [x[:, 0, 1:3], x[..., None], x[:, ::-1], x[:, -1], x[:, :, 1::2]]),
        function(lambda o, x: o.concatenate(o.split(x, 3, axis=2)[::-1], axis=1), lambda t, x: t.concat(t.split(x, 3, axis=2)[::-1], axis=1)),
        function(lambda o, x: o.split(x, [1, 3], axis=2), lambda t, x: t.split(x, [1, 2, 3], axis=2)),
        function(lambda o, x: o.stack([x, -x], axis=1), lambda t, x: t.stack([x, -x], axis=1)),
        function(lambda o, x: o.matmul(x, o.transpose(x, (0, 2, 1))), lambda t, x: t.matmul(x, x, transpose_b=True)),
        function(lambda o, x: [o.mean(x, axis=1), o.sum(x, axis=[1, 2]), o.max(x, axis=-1, keepdims=True), o.argmax(x, axis=-1)],
                 lambda t, x: [t.reduce_mean(x, axis=1), t.reduce_sum(x, axis=[1, 2]), t.reduce_max(x, axis=-1, keepdims=True), t.argmax(x, axis=-1)]),
        function(lambda o, x: o.where(x > 0, x, 0.0), lambda t, x: t.where(x > 0, x, 0.0)),
        function(lambda o, x: o.clip(o.exp(x), 0.5, 1.5), lambda t, x: t.clip_by_value(t.exp(x), 0.5, 1.5)),
        function(lambda o, x: o.softmax(o.reshape(x, (-1, 24))), lambda t, x: t.nn.softmax(t.reshape(x, (-1, 24)))),
        function(lambda o, x: o.expand_dims(o.squeeze(o.sum(x, axis=1, keepdims=True), 1), -1),
                 lambda t, x: t.expand_dims(t.squeeze(t.reduce_sum(x, axis=1, keepdims=True), 1), -1)),
        function(lambda o, x: o.one_hot(o.cast(x * 4, "int32"), 4), lambda t, x: t.one_hot(t.cast(x * 4, "int32"), 4)),
        function(lambda o, x: o.einsum("abc,adc->abd", x, x), None),
        function(lambda o, x: [o.relu(x), o.gelu(x), o.silu(x), o.leaky_relu(x), o.tanh(x), o.relu6(x * 8), o.log_softmax(x)],
                 lambda t, x: [t.nn.relu(x), t.nn.gelu(x), t.nn.silu(x), t.nn.leaky_relu(x), t.tanh(x), t.nn.relu6(x * 8), t.nn.log_softmax(x)]),
        function(lambda o, x: [o.tile(x, [1, 2, 1]), o.pad(x, [[0, 0], [1, 2], [0, 1]]), o.take(x, [0, 2], axis=1)],
                 lambda t, x: [t.tile(x, [1, 2, 1]), t.pad(x, [[0, 0], [1, 2], [0, 1]]), t.gather(x, [0, 2], axis=1)]),
        function(lambda o, x: [o.sqrt(o.square(x)), o.abs(x), o.floor(x * 3), o.sign(x), o.rsqrt(o.exp(x))],
                 lambda t, x: [t.sqrt(t.square(x)), t.abs(x), t.floor(x * 3), t.sign(x), t.math.rsqrt(t.exp(x))]),
        function(None, lambda t, x: t.image.resize(x, [5, 9]), (4, 6, 3)),
        function(None, lambda t, x: [t.math.l2_normalize(x, axis=-1), t.math.squared_difference(x, 0.5), t.math.add_n([x, x])]),
    ],
}
