// Keras files, written here through libhdf5: what they become, and what is said of bad ones.
#include <gtest/gtest.h>
#include <hdf5.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "services/importer/keras/hdf5_file.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::keras_test {
namespace {

using testing::ErrorOf;
using testing::F32;
using testing::HasSubstr;
using testing::ImportFolder;
using Sizes = std::vector<hsize_t>;
using Floats = std::vector<float>;

// An HDF5 file on its way.
class H5 {
 public:
  explicit H5(const std::filesystem::path& path)
      : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {
    links_ = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links_, 1);
  }
  ~H5() {
    H5Pclose(links_);
    H5Fclose(file_);
  }
  H5(const H5&) = delete;
  H5& operator=(const H5&) = delete;

  hid_t file() const { return file_; }
  hid_t links() const { return links_; }

  H5& Group(const std::string& path) {
    H5Gclose(H5Gcreate2(file_, path.c_str(), links_, H5P_DEFAULT, H5P_DEFAULT));
    return *this;
  }
  H5& Text(const std::string& object, const std::string& name, const std::string& text) {
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    const char* pointer = text.c_str();
    Attribute(object, name, type, space, &pointer);
    return *this;
  }
  H5& Texts(const std::string& object, const std::string& name,
            const std::vector<std::string>& texts) {
    constexpr size_t kSize = 40;
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, kSize);
    const hsize_t count = texts.size();
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    std::string bytes;
    for (std::string text : texts) {
      text.resize(kSize);
      bytes += text;
    }
    Attribute(object, name, type, space, bytes.data());
    return *this;
  }
  // `list` is what the data set is created with; 0 for nothing.
  H5& Data(const std::string& path, const Sizes& dims, const Floats& values, hid_t list = 0) {
    const hid_t space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
    const hid_t data = H5Dcreate2(file_, path.c_str(), H5T_IEEE_F32LE, space, links_,
                                  list == 0 ? H5P_DEFAULT : list, H5P_DEFAULT);
    if (!values.empty())
      H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Dclose(data);
    H5Sclose(space);
    return *this;
  }

 private:
  void Attribute(const std::string& object, const std::string& name, hid_t type, hid_t space,
                 const void* value) {
    const hid_t owner = H5Oopen(file_, object.c_str(), H5P_DEFAULT);
    const hid_t attribute = H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, value);
    H5Aclose(attribute);
    H5Oclose(owner);
    H5Sclose(space);
    H5Tclose(type);
  }

  hid_t file_ = -1, links_ = -1;
};

std::string Layer(const std::string& name, const std::string& kind, const std::string& config,
                  const std::string& nodes) {
  return R"({"class_name": ")" + kind + R"(", "name": ")" + name + R"(", "config": {"name": ")" +
         name + "\"" + (config.empty() ? "" : ", " + config) + R"(}, "inbound_nodes": [)" + nodes +
         "]}";
}

std::string From(const std::string& layer, int call = 0) {
  return "[[\"" + layer + "\", " + std::to_string(call) + ", 0, {}]]";
}

std::string Functional(const std::string& layers, const std::string& output) {
  return R"({"class_name": "Functional", "config": {"name": "net", "layers": [)" + layers +
         R"(], "input_layers": [["x", 0, 0]], "output_layers": [[")" + output + R"(", 0, 0]]}})";
}

const std::string kInput =
    Layer("x", "InputLayer", R"("batch_input_shape": [null, 2], "dtype": "float32")", "");
const std::string kDense = R"("units": 3, "activation": "relu", "use_bias": true)";

std::vector<pid_t> ChildrenOfThisProcess() {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    if (std::atoi(process.path().filename().c_str()) == 0) continue;
    std::ifstream file(process.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const size_t end = stat.rfind(") ");  // of the name; the state and the parent follow
    if (end == std::string::npos || end + 4 >= stat.size()) continue;
    if (std::atoi(stat.c_str() + end + 4) == ::getpid())
      children.push_back(std::atoi(stat.c_str()));
  }
  return children;
}

class KerasTest : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "model.h5"; }

  // The groups of a whole model.
  void Begin(H5& file, const std::string& config, const std::vector<std::string>& layers) {
    file.Group("model_weights")
        .Text("/", "model_config", config)
        .Text("/", "keras_version", "2.9.0");
    file.Texts("model_weights", "layer_names", layers);
    for (const std::string& layer : layers) file.Group("model_weights/" + layer);
  }
  static void AddDense(H5& file, const std::string& layer, hsize_t in = 2) {
    const std::string group = "model_weights/" + layer;
    Floats kernel(in * 3);
    for (size_t i = 0; i < kernel.size(); ++i) kernel[i] = static_cast<float>(i);
    file.Texts(group, "weight_names", {layer + "/kernel:0", layer + "/bias:0"});
    file.Data(group + "/" + layer + "/kernel:0", {in, 3}, kernel);
    file.Data(group + "/" + layer + "/bias:0", {3}, {1, -20, 2});
  }
  // A Dense layer whose kernel `add` writes.
  template <typename Add>
  std::string ErrorOfKernel(const Add& add) {
    {
      H5 file(path());
      Begin(file, Functional(kInput + "," + Layer("d", "Dense", kDense, From("x")), "d"), {"d"});
      file.Texts("model_weights/d", "weight_names", {"k", "b"});
      file.Data("model_weights/d/b", {3}, {0, 0, 0});
      add(file);
    }
    return ErrorOf(Import().status());
  }
  absl::StatusOr<Imported> Import(const ImportOptions& options = {}) {
    return ImportModel(path(), options, folder_.store());
  }
  std::string ErrorOfModel(const std::string& config) {
    {
      H5 file(path());
      Begin(file, config, {});
    }
    return ErrorOf(Import().status());
  }
  std::string ErrorOfBytes(const std::string& bytes) {
    std::ofstream(path(), std::ios::binary) << bytes;
    return ErrorOf(Import().status());
  }
  Floats Run(const Tensor& x, const ImportOptions& options = {}) {
    const absl::StatusOr<Imported> imported = Import(options);
    EXPECT_TRUE(imported.ok()) << imported.status();
    if (!imported.ok()) return {};
    const auto outputs = ops::Evaluate(imported->canonical, std::vector<Tensor>{x});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return {};
    const auto values = (*outputs)[0].as<float>();
    return {values.begin(), values.end()};
  }

  ImportFolder folder_;
};

TEST_F(KerasTest, SequentialModel) {
  {
    H5 file(path());
    Begin(
        file,
        R"({"class_name": "Sequential", "config": [{"class_name": "Dense", "config": {"name": "d",)"
        R"( "batch_input_shape": [null, 2], )" +
            kDense + "}}]}",
        {"d"});
    AddDense(file, "d");
  }
  EXPECT_EQ(Run(F32({1, 2}, {1, 2})), (Floats{7, 0, 14}));
}

TEST_F(KerasTest, SharedLayersAndModelsWithin) {
  const std::string inner =
      R"({"class_name": "Functional", "name": "inner", "inbound_nodes": [)" + From("x") + "," +
      From("inner", 1) + R"(], "config": {"name": "inner", "layers": [)" +
      Layer("i", "InputLayer", R"("batch_input_shape": [null, 2])", "") + "," +
      Layer("p", "Dense", R"("units": 2, "use_bias": false)", From("i")) +
      R"(], "input_layers": [["i", 0, 0]], "output_layers": [["p", 0, 0]]}})";
  {
    H5 file(path());
    Begin(
        file,
        Functional(kInput + "," + inner + "," + Layer("d", "Dense", kDense, From("inner", 2)), "d"),
        {"inner", "d"});
    AddDense(file, "d");
    file.Texts("model_weights/inner", "weight_names", {"p/kernel:0"});
    file.Data("model_weights/inner/p/kernel:0", {2, 2}, {0, 1, 1, 0});  // swaps
  }
  EXPECT_EQ(Run(F32({1, 2}, {1, 2})), (Floats{7, 0, 14}));
}

TEST_F(KerasTest, WeightsAloneTakeAnArchitecture) {
  {
    H5 file(path());
    file.Texts("/", "layer_names", {"d"}).Group("d");
    file.Texts("d", "weight_names", {"k", "b"});
    file.Data("d/k", {2, 3}, {0, 1, 2, 3, 4, 5}).Data("d/b", {3}, {1, -20, 2});
  }
  EXPECT_THAT(ErrorOf(Import().status()), HasSubstr("--architecture FILE.json"));
  ImportOptions options;
  options.architecture = Functional(kInput + "," + Layer("d", "Dense", kDense, From("x")), "d");
  EXPECT_EQ(Run(F32({1, 2}, {1, 2}), options), (Floats{7, 0, 14}));
  options.architecture = "{";
  EXPECT_THAT(ErrorOf(Import(options).status()), HasSubstr("architecture: the model's"));
}

TEST_F(KerasTest, DeflateAndShuffleAreRead) {
  {
    H5 file(path());
    Begin(file, Functional(kInput + "," + Layer("d", "Dense", kDense, From("x")), "d"), {"d"});
    file.Texts("model_weights/d", "weight_names", {"k", "b"});
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk[] = {1, 2};
    H5Pset_chunk(list, 2, chunk);
    H5Pset_shuffle(list);
    H5Pset_deflate(list, 6);
    file.Data("model_weights/d/k", {2, 3}, {0, 1, 2, 3, 4, 5}, list);
    file.Data("model_weights/d/b", {3}, {1, -20, 2});
    H5Pclose(list);
  }
  EXPECT_EQ(Run(F32({1, 2}, {1, 2})), (Floats{7, 0, 14}));
}

// Its processes are stopped in the middle.
TEST_F(KerasTest, AReaderThatHangsIsTakenOver) {
  {
    H5 file(path());
    Begin(file, Functional(kInput, "x"), {});
    for (int i = 0; i < 2000; ++i) {
      file.Data("model_weights/d" + std::to_string(i), {2}, {1, 2});
    }
  }
  const auto mapping = *FileMapping::Open(path());
  for (const int most : {1, 1000}) {
    std::atomic<bool> done{false};
    int stopped = 0;
    std::thread stopper([&] {
      std::set<pid_t> seen;
      while (!done && stopped < most) {
        for (const pid_t child : ChildrenOfThisProcess()) {
          if (!seen.insert(child).second) continue;
          stopped += ::kill(child, SIGSTOP) == 0 ? 1 : 0;
        }
      }
    });
    const auto read = ReadHdf5(mapping->bytes(), {}, std::chrono::milliseconds(300));
    done = true;
    stopper.join();
    ASSERT_GT(stopped, 0);
    if (most == 1) {
      EXPECT_TRUE(read.ok()) << read.status();
    } else {
      EXPECT_EQ(read.status().code(), absl::StatusCode::kInternal);
      EXPECT_THAT(ErrorOf(read.status()), HasSubstr("the process that reads HDF5 hangs"));
    }
  }
}

TEST_F(KerasTest, BytesThatAreNoModel) {
  EXPECT_THAT(ErrorOfBytes(""), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOfBytes("something else"), HasSubstr("HDF5"));
  EXPECT_THAT(ErrorOfBytes("\x89HDF\r\n\x1a\n" + std::string(2000, 'x')), HasSubstr("HDF5"));
  {
    H5 file(path());
    Begin(file, Functional(kInput + "," + Layer("d", "Dense", kDense, From("x")), "d"), {"d"});
    AddDense(file, "d");
  }
  std::ifstream stream(path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(stream), {}};
  for (size_t size = 1; size < whole.size(); size += whole.size() / 16)
    EXPECT_NE(ErrorOfBytes(whole.substr(0, size)), "") << size;
  // Anything may stand where something is damaged: an answer, whichever.
  for (size_t at = 9; at < whole.size(); at += whole.size() / 40) {
    std::string damaged = whole;
    for (size_t i = at; i < std::min(at + 8, damaged.size()); ++i)
      damaged[i] = static_cast<char>(0xa5);
    std::ofstream(path(), std::ios::binary) << damaged;
    const absl::StatusOr<Imported> imported = Import();
    EXPECT_TRUE(imported.ok() || !absl::IsInternal(imported.status())) << imported.status();
  }
}

TEST_F(KerasTest, ConfigurationsThatDoNotFitTogether) {
  EXPECT_THAT(ErrorOfModel("{"), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOfModel(std::string(1000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(ErrorOfModel(R"({"class_name": "Mine", "config": {}})"), HasSubstr("`Mine`"));
  EXPECT_THAT(ErrorOfModel(Functional(kInput, "nothing")), HasSubstr("output_layers"));
  EXPECT_THAT(ErrorOfModel(Functional(kInput + "," + Layer("d", "Dropout", "", From("x", 3)), "d")),
              HasSubstr("call 3 of layer `x`"));
  EXPECT_THAT(ErrorOfModel(Functional(kInput + "," + Layer("a", "Dropout", "", From("b")) + "," +
                                          Layer("b", "Dropout", "", From("a")),
                                      "b")),
              HasSubstr("does not list: `a`, `b`"));
  EXPECT_THAT(ErrorOfModel(Functional(kInput + "," + kInput, "x")), HasSubstr("two layers `x`"));
}

TEST_F(KerasTest, DirectionsWithoutAnInput) {
  const std::string lstm =
      R"("layer": {"class_name": "LSTM", "config": {"name": "l", "units": 2}})";
  EXPECT_THAT(ErrorOfModel(Functional(kInput + "," + Layer("b", "Bidirectional", lstm, "[]"), "b")),
              HasSubstr("layer `b` (Bidirectional): 0 inputs"));
  EXPECT_THAT(
      ErrorOfModel(Functional(
          kInput + "," + Layer("b", "Bidirectional", lstm, R"([["x", 0, 0, {}], ["x", 0, 0, {}]])"),
          "b")),
      HasSubstr("layer `b` (Bidirectional): 2 inputs"));
}

TEST_F(KerasTest, SlicesOfMoreAxesThanThereAre) {
  const auto error_of = [&](const std::string& spec) {
    return ErrorOfModel(
        Functional(kInput + "," +
                       Layer("s", "SlicingOpLambda", R"("function": "__operators__.getitem")",
                             R"(["x", 0, 0, {"slice_spec": )" + spec + "}]"),
                   "s"));
  };
  EXPECT_THAT(error_of(R"(["...", 0, 0, 0])"), HasSubstr("takes 3 axes, its input has 2"));
  EXPECT_THAT(error_of(R"([0, {"start": 0, "stop": 1}, null, 1])"),
              HasSubstr("takes 3 axes, its input has 2"));
  EXPECT_THAT(error_of(R"(["...", "...", 0])"), HasSubstr("has more than one `...`"));
}

TEST_F(KerasTest, WhatIsNotSupportedIsListedAtOnce) {
  const std::string error =
      ErrorOfModel(Functional(kInput + "," + Layer("f", "Lambda", "", From("x")) + "," +
                                  Layer("g", "MyLayer", "", From("f")),
                              "g"));
  EXPECT_THAT(error, HasSubstr("2 operators"));
  EXPECT_THAT(error, HasSubstr("`Lambda` of domain `keras`"));
  EXPECT_THAT(error, HasSubstr("`MyLayer`"));
  EXPECT_THAT(
      ErrorOfModel(Functional(
          kInput + "," +
              Layer("d", "Dense", R"("units":4,"dtype":{"class_name":"QuantizedDTypePolicy"})",
                    From("x")),
          "d")),
      HasSubstr("layer `d` (Dense): its weights are quantized by Keras"));
}

TEST_F(KerasTest, WeightsThatCannotBeHad) {
  EXPECT_THAT(ErrorOfKernel([](H5&) {}), HasSubstr("the file has no `model_weights/d/k`"));
  EXPECT_THAT(ErrorOfKernel([](H5& file) { file.Data("model_weights/d/k", {3, 3}, Floats(9, 0)); }),
              HasSubstr("kernel has the shape [3, 3], expected [2, 3]"));
  EXPECT_THAT(ErrorOfKernel([](H5& file) {
                H5Lcreate_external("other.h5", "/k", file.file(), "model_weights/d/k", file.links(),
                                   H5P_DEFAULT);
              }),
              HasSubstr("is a link to another file"));
  EXPECT_THAT(ErrorOfKernel([](H5& file) {
                H5Lcreate_soft("/model_weights/d/b", file.file(), "model_weights/d/k", file.links(),
                               H5P_DEFAULT);
              }),
              HasSubstr("is a soft link"));
  EXPECT_THAT(ErrorOfKernel([](H5& file) {
                const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
                H5Pset_external(list, "/etc/hostname", 0, 24);
                file.Data("model_weights/d/k", {2, 3}, {}, list);
                H5Pclose(list);
              }),
              HasSubstr("is stored in another file"));
  EXPECT_THAT(ErrorOfKernel([](H5& file) {
                const hsize_t dims[] = {2, 3};
                const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
                const hid_t space = H5Screate_simple(2, dims, nullptr);
                H5Pset_virtual(list, space, "/etc/hostname", "k", space);
                file.Data("model_weights/d/k", {2, 3}, {}, list);
                H5Sclose(space);
                H5Pclose(list);
              }),
              HasSubstr("is a virtual data set"));
  EXPECT_THAT(ErrorOfKernel([](H5& file) {
                const hsize_t chunk[] = {2, 3};
                const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
                H5Pset_chunk(list, 2, chunk);
                H5Pset_fletcher32(list);
                file.Data("model_weights/d/k", {2, 3}, Floats(6, 0), list);
                H5Pclose(list);
              }),
              HasSubstr("filter 3, deflate and shuffle are read"));
  EXPECT_THAT(
      ErrorOfKernel([](H5& file) { file.Data("model_weights/d/k", {hsize_t{1} << 40, 3}, {}); }),
      HasSubstr("claims the shape [1099511627776, 3]"));
}

TEST_F(KerasTest, AnOptionOfOtherFormatsIsRefused) {
  {
    H5 file(path());
    Begin(file, Functional(kInput, "x"), {});
  }
  ImportOptions options;
  options.signature = "serve";
  EXPECT_THAT(ErrorOf(Import(options).status()), HasSubstr("models of format tensorflow, tflite"));
}

}  // namespace
}  // namespace quench::importer::keras_test
