#include "tests/unit/services/codegen/kernels/reference.h"

#include "services/codegen/targets/resolve.h"
#include "tests/support/targets.h"

namespace quench::codegen {

Tensor RandomTensor(std::vector<int64_t> dims, uint32_t seed) {
  Tensor tensor = Tensor::Zeros(DataType::kF32, std::move(dims));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  float* values = reinterpret_cast<float*>(tensor.mutable_bytes());
  for (int64_t i = 0; i < tensor.size(); ++i) values[i] = uniform(random);
  return tensor;
}

Tensor NaiveConv(const ConvCase& c, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const int64_t oh = c.out(0), ow = c.out(1), icg = c.ic / c.group, ocg = c.oc / c.group;
  Tensor y = Tensor::Zeros(DataType::kF32, {c.n, c.oc, oh, ow});
  float* out = reinterpret_cast<float*>(y.mutable_bytes());
  const float* in = x.as<float>().data();
  const float* weight = w.as<float>().data();
  for (int64_t n = 0; n < c.n; ++n) {
    for (int64_t o = 0; o < c.oc; ++o) {
      for (int64_t yy = 0; yy < oh; ++yy) {
        for (int64_t xx = 0; xx < ow; ++xx) {
          double sum = c.bias ? bias.as<float>()[static_cast<size_t>(o)] : 0;
          for (int64_t i = 0; i < icg; ++i) {
            for (int64_t ky = 0; ky < c.kh; ++ky) {
              const int64_t iy = yy * c.strides[0] - c.pads[0] + ky * c.dilations[0];
              if (iy < 0 || iy >= c.ih) continue;
              for (int64_t kx = 0; kx < c.kw; ++kx) {
                const int64_t ix = xx * c.strides[1] - c.pads[1] + kx * c.dilations[1];
                if (ix < 0 || ix >= c.iw) continue;
                sum += static_cast<double>(
                           in[((n * c.ic + o / ocg * icg + i) * c.ih + iy) * c.iw + ix]) *
                       weight[((o * icg + i) * c.kh + ky) * c.kw + kx];
              }
            }
          }
          out[((n * c.oc + o) * oh + yy) * ow + xx] = static_cast<float>(sum);
        }
      }
    }
  }
  return y;
}

Tensor NaiveMatMul(const Tensor& a, const Tensor& b, std::vector<int64_t> out_dims) {
  Tensor y = Tensor::Zeros(DataType::kF32, std::move(out_dims));
  const int64_t k = a.dims().back(), n = b.dims().back(),
                m = a.dims()[static_cast<size_t>(a.rank() - 2)];
  const int64_t batch = y.size() / std::max<int64_t>(1, m * n);
  float* out = reinterpret_cast<float*>(y.mutable_bytes());
  for (int64_t i = 0; i < batch; ++i) {
    const float* left = a.as<float>().data() + (a.size() == m * k ? 0 : i * m * k);
    const float* right = b.as<float>().data() + (b.size() == k * n ? 0 : i * k * n);
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum += static_cast<double>(left[r * k + j]) * right[j * n + c];
        out[(i * m + r) * n + c] = static_cast<float>(sum);
      }
    }
  }
  return y;
}

void Fuse(Graph& graph, const Tail& tail) {
  const Node root = graph.nodes.back();
  graph.nodes.pop_back();
  auto body = std::make_shared<Graph>();
  body->symbols = graph.symbols;
  std::vector<ValueId> captured;
  const auto capture = [&](ValueId outer) {
    for (size_t i = 0; i < captured.size(); ++i) {
      if (captured[i] == outer) return body->inputs[i];
    }
    captured.push_back(outer);
    return body->AddInput(graph.value(outer).name, graph.value(outer).type);
  };
  std::vector<ValueId> inputs;
  for (const ValueId id : root.inputs)
    inputs.push_back(id == quench::kNone ? quench::kNone : capture(id));
  const NodeId copy = body->AddNode(root.op, root.name, inputs, 1, root.attributes);
  const ValueId root_value = body->node(copy).outputs[0];
  body->value(root_value).type = graph.value(root.outputs[0]).type;
  body->outputs = {tail(*body, root_value, capture)};
  Node fused;
  fused.name = root.name;
  fused.op = "q.fused";
  fused.inputs = captured;
  fused.outputs = root.outputs;
  fused.attributes["body"] = GraphPtr(body);
  graph.nodes.push_back(fused);
}

ValueId Pointwise(Graph& body, const std::string& op, std::vector<ValueId> inputs, ValueId like) {
  const NodeId node = body.AddNode(op, op, std::move(inputs));
  const ValueId out = body.node(node).outputs[0];
  body.value(out).type = body.value(like).type;
  return out;
}

std::vector<Target> RunnableTargets() {
  const std::vector<Target> host = ResolveTarget("host").value();
  std::vector<Target> runnable;
  if (const std::optional<Target> foreign = ForeignShape()) runnable.push_back(*foreign);
  for (const char* name : {"x86-64", "aarch64", "armv7"}) {
    const std::vector<Target> variants = ResolveTarget(name).value();
    for (const Target& target : variants) {
      if (target.machine == host[0].machine && ThisCpuFeatures().Has(target.required_features)) {
        runnable.push_back(target);
      }
    }
  }
  return runnable;
}

}  // namespace quench::codegen
