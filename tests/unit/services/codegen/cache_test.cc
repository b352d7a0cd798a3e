// Caches that a run changes a part of: the same numbers with one memory for input and output as with
// two, and what may not share memory is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "common/ops/evaluate.h"
#include "common/runtime/quench_rt.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::cache_test {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3, kRoom = 40, kSize = 8;

// One step of a decoder: keys and values are written into their caches, a query attends what is there.
Graph Decoder() {
  Graph graph;
  const auto input = [&](const char* name, DataType type, std::vector<Dim> dims) {
    return graph.AddInput(name, Type::Tensor(type, std::move(dims)));
  };
  const ValueId q = input("q", DataType::kF32, {kBatch, kHeads, 1, kSize});
  const ValueId k = input("k", DataType::kF32, {kBatch, kHeads, 1, kSize});
  const ValueId v = input("v", DataType::kF32, {kBatch, kHeads, 1, kSize});
  const ValueId keys = input("keys", DataType::kF32, {kBatch, kHeads, kRoom, kSize});
  const ValueId values = input("values", DataType::kF32, {kBatch, kHeads, kRoom, kSize});
  const ValueId at = input("at", DataType::kI64, {kBatch});
  const ValueId lengths = input("lengths", DataType::kI64, {kBatch});
  const ValueId new_keys = Node1(graph, "TensorScatter", {keys, k, at});
  const ValueId new_values = Node1(graph, "TensorScatter", {values, v, at});
  const ValueId y =
      Node1(graph, "Attention", {q, new_keys, new_values, kNone, kNone, kNone, lengths});
  graph.outputs = {y, new_keys, new_values};
  Infer(graph);
  return graph;
}

class Session {
 public:
  explicit Session(const std::filesystem::path& library) {
    quench_rt_error error;
    EXPECT_EQ(quench_rt_open_file(library.c_str(), &model_, &error), 0) << error.text;
    EXPECT_EQ(quench_rt_session_create(model_, nullptr, &session_, &error), 0) << error.text;
  }
  ~Session() {
    quench_rt_session_free(session_);
    quench_rt_close(model_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Set(uint32_t index, const Tensor& tensor) { Set(index, tensor, tensor.bytes().data()); }
  void Set(uint32_t index, const Tensor& tensor, const void* data) {
    quench_rt_tensor view = {};
    view.dtype = static_cast<int32_t>(tensor.dtype());
    view.rank = tensor.rank();
    view.dims = tensor.dims().data();
    view.data = const_cast<void*>(data);
    quench_rt_error error;
    EXPECT_EQ(quench_rt_set_input(session_, index, &view, &error), 0) << error.text;
  }
  void Bind(uint32_t index, void* data, size_t bytes) {
    quench_rt_error error;
    EXPECT_EQ(quench_rt_set_output(session_, index, data, bytes, &error), 0) << error.text;
  }
  std::string Run() {  // what went wrong
    quench_rt_error error;
    return quench_rt_run(session_, &error) == 0 ? "" : error.text;
  }
  const void* Memory(uint32_t index) { return View(index).data; }
  std::vector<float> Output(uint32_t index) {
    const quench_rt_tensor view = View(index);
    int64_t count = 1;
    for (int32_t i = 0; i < view.rank; ++i) count *= view.dims[i];
    const auto* values = static_cast<const float*>(view.data);
    return {values, values + count};
  }

 private:
  quench_rt_tensor View(uint32_t index) {
    quench_rt_tensor view = {};
    quench_rt_error error;
    EXPECT_EQ(quench_rt_get_output(session_, index, &view, &error), 0) << error.text;
    return view;
  }

  quench_rt_model* model_ = nullptr;
  quench_rt_session* session_ = nullptr;
};

TEST(CacheTest, OneMemoryForInputAndOutput) {
  const Graph graph = Decoder();
  const Compiled compiled = CompileGraph(graph).value();
  Session session(compiled.library());
  const std::vector<int64_t> dims = {kBatch, kHeads, kRoom, kSize};
  Tensor keys = Values(dims, 11), values = Values(dims, 12);
  std::vector<float> own_keys(keys.as<float>().begin(), keys.as<float>().end());
  std::vector<float> own_values(values.as<float>().begin(), values.as<float>().end());
  const size_t bytes = own_keys.size() * sizeof(float);
  session.Bind(1, own_keys.data(), bytes);
  session.Bind(2, own_values.data(), bytes);
  for (int64_t step = 0; step < 5; ++step) {
    std::vector<Tensor> inputs;
    for (const uint64_t part : {0U, 1U, 2U})
      inputs.push_back(
          Values({kBatch, kHeads, 1, kSize}, 20 + 3 * static_cast<uint64_t>(step) + part));
    inputs.push_back(keys);
    inputs.push_back(values);
    inputs.push_back(Tensor::I64({step, 7 + step}));
    inputs.push_back(Tensor::I64({step + 1, 8 + step}));
    const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
    for (const uint32_t i : {0U, 1U, 2U, 5U, 6U}) session.Set(i, inputs[i]);
    session.Set(3, keys, own_keys.data());
    session.Set(4, values, own_values.data());
    ASSERT_EQ(session.Run(), "");
    const std::vector<float> y = session.Output(0);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[0].as<float>()[i], 1e-6);
    EXPECT_EQ(std::memcmp(own_keys.data(), expected[1].bytes().data(), bytes), 0);
    EXPECT_EQ(std::memcmp(own_values.data(), expected[2].bytes().data(), bytes), 0);
    keys = expected[1];
    values = expected[2];
  }
}

TEST(CacheTest, MemoryOfTheSessionIsACopy) {
  const Tensor one = Values({kBatch, kHeads, 1, kSize});
  const Tensor cache = Values({kBatch, kHeads, kRoom, kSize}, 11);
  for (const int level : {0, 3})
    ExpectSame(Decoder(), {one, one, one, cache, cache, Tensor::I64({0, 39}), Tensor::I64({1, 40})},
               level);
}

TEST(CacheTest, OtherSharesOfMemoryAreRefused) {
  const Graph graph = Decoder();
  const Compiled compiled = CompileGraph(graph).value();
  Session session(compiled.library());
  const std::vector<int64_t> dims = {kBatch, kHeads, kRoom, kSize};
  const Tensor keys = Values(dims, 11), values = Values(dims, 12),
               one = Values({kBatch, kHeads, 1, kSize});
  std::vector<float> memory(2 * keys.as<float>().size());
  const size_t bytes = keys.bytes().size();
  for (const uint32_t i : {0U, 1U, 2U}) session.Set(i, one);
  session.Set(3, keys, memory.data());
  session.Set(4, values);
  const Tensor at = Tensor::I64({0, 0}), lengths = Tensor::I64({1, 1});
  session.Set(5, at);
  session.Set(6, lengths);
  session.Bind(1, memory.data() + 8, bytes);
  EXPECT_NE(session.Run().find("from the same address"), std::string::npos);
  session.Bind(1, nullptr, 0);
  session.Bind(2, memory.data(), bytes);
  EXPECT_NE(session.Run().find("does not write it in place"), std::string::npos);
  session.Bind(2, memory.data() + keys.as<float>().size(), bytes);
  EXPECT_EQ(session.Run(), "");
  session.Bind(1, memory.data() + keys.as<float>().size(), bytes);
  EXPECT_NE(session.Run().find("bound to the same memory"), std::string::npos);
}

// Outputs of a session go back in: in place if that is possible, else they would be overwritten while they are read.
TEST(CacheTest, OutputsOfTheSessionAsInputs) {
  const Graph graph = Decoder();
  const Compiled compiled = CompileGraph(graph).value();
  Session session(compiled.library());
  const Tensor cache = Values({kBatch, kHeads, kRoom, kSize}, 11);
  const Tensor one = Values({kBatch, kHeads, 1, kSize});
  const Tensor at = Tensor::I64({0, 0}), lengths = Tensor::I64({1, 1});
  for (const uint32_t i : {0U, 1U, 2U}) session.Set(i, one);
  for (const uint32_t i : {3U, 4U}) session.Set(i, cache);
  session.Set(5, at);
  session.Set(6, lengths);
  ASSERT_EQ(session.Run(), "");
  session.Set(3, cache, session.Memory(1));
  session.Set(4, cache, session.Memory(2));
  EXPECT_EQ(session.Run(), "");
  session.Set(1, one, session.Memory(0));
  EXPECT_NE(session.Run().find("would be written to memory of input `k`"), std::string::npos);
}

// A value that a node updates dies there: neither is it copied, nor does the arena have it twice.
TEST(CacheTest, InnerTensorsAreUpdatedWhereTheyAre) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {64, 64}));
  const ValueId indices =
      graph.AddConstant("i", Tensor::Of(DataType::kI64, {2, 1}, std::vector<int64_t>{3, 60}));
  const ValueId rows = graph.AddConstant("rows", Values({2, 64}));
  const ValueId y =
      Node1(graph, "ScatterND",
            {Node1(graph, "CumSum", {x, graph.AddConstant("axis", Tensor::I64({1}).Reshaped({}))}),
             indices, rows});
  graph.outputs = {
      Node1(graph, "CumSum", {y, graph.AddConstant("axis", Tensor::I64({0}).Reshaped({}))})};
  Infer(graph);
  ExpectSameAsInterpreter(graph);
  const Compiled compiled = CompileGraph(graph).value();
  const auto artifact = Artifact::Open(compiled.library(), 1).value();
  ASSERT_TRUE(artifact->Run(std::vector<Tensor>{Values({64, 64})}).ok());
  EXPECT_LT(artifact->arena_bytes(), 2 * 64 * 64 * 4);
}

}  // namespace
}  // namespace quench::codegen::cache_test
