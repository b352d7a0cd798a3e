// Any text as the configuration of a Keras model: a graph of its layers, or an error. Weights are not
// looked for: files are libhdf5's business, in a child process.
#include "common/base/status.h"
#include "services/importer/keras/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  quench::importer::KerasFile file;
  for (const int version : {1, 2, 3}) {
    file.version = version;
    auto model = quench::importer::ParseKerasModel(text, version);
    if (!model.ok()) {
      QUENCH_CHECK(!quench::MessageOf(model.status()).empty());
      continue;
    }
    file.model = *std::move(model);
    const auto graph = quench::importer::ReadKerasGraph(file, {}, nullptr, {});
    QUENCH_CHECK(graph.ok() || !quench::MessageOf(graph.status()).empty());
    (void)quench::importer::WeightsOf(file);
  }
  return 0;
}
