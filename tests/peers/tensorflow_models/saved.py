"""Saved models with variables, as TensorFlow writes them: NAME -> (folder) -> {input: values}, {output: values}."""

import numpy
import tensorflow

V1 = tensorflow.compat.v1


class Network(tensorflow.Module):
    """Variables in objects within one another, one of them in a blob of its own, and a function that calls another."""

    def __init__(self, random):
        super().__init__()
        draw = lambda *shape: tensorflow.Variable(numpy.round(random.uniform(-1, 1, shape), 2).astype("float32"))
        self.layers = [draw(4, 8), draw(8)]
        self.table = {"rows": draw(300, 4)}

    @tensorflow.function
    def activate(self, x):
        return tensorflow.nn.relu(x @ self.layers[0] + self.layers[1])

    @tensorflow.function(input_signature=[tensorflow.TensorSpec([3], tensorflow.int32, "rows")])
    def serve(self, rows):
        return {"scores": self.activate(tensorflow.gather(self.table["rows"], rows))}


def version2(folder, random):
    network = Network(random)
    rows = numpy.array([1, 299, 7], "int32")
    tensorflow.saved_model.save(network, str(folder), signatures=network.serve)
    return {"rows": rows}, {"scores": network.serve(rows)["scores"].numpy()}


def version1(folder, random):
    x = numpy.round(random.uniform(-1, 1, (2, 5)), 2).astype("float32")
    with tensorflow.Graph().as_default(), V1.Session() as session:
        given = V1.placeholder("float32", (2, 5), "given")
        weights = V1.get_variable("dense/weights", (5, 3), initializer=V1.random_uniform_initializer(-1, 1, seed=1), use_resource=False)
        bias = V1.get_variable("dense/bias", (3,), initializer=V1.random_uniform_initializer(-1, 1, seed=2), use_resource=True)
        result = tensorflow.tanh(given @ weights + bias, "result")
        session.run(V1.global_variables_initializer())
        V1.saved_model.simple_save(session, str(folder), {"x": given}, {"y": result})
        return {"x": x}, {"y": session.run(result, {given: x})}


SAVED = {"SavedModelV2": version2, "SavedModelV1": version1}
