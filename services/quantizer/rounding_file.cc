#include "services/quantizer/rounding_file.h"

#include "common/base/status.h"
#include "services/quantizer/message_file.h"

namespace quench::quantizer {
namespace {

constexpr std::string_view kRoundingMagic = "QUENCHROUNDING1\n";

}  // namespace

v1::Rounding ToProto(const Rounding& rounding) {
  v1::Rounding message;
  message.set_fingerprint(rounding.fingerprint);
  message.set_scheme(rounding.scheme);
  message.set_samples(rounding.samples);
  message.set_random(rounding.random);
  for (const AdaptedKernel& kernel : rounding.kernels) {
    v1::AdaptedKernel& added = *message.add_kernels();
    added.set_constant(kernel.constant);
    added.set_axis(kernel.axis);
    added.set_node(kernel.node);
    added.set_otherwise(kernel.otherwise);
    added.set_elements(kernel.elements);
    added.set_moved(kernel.moved);
    added.set_nearest_sqnr_db(kernel.nearest_db);
    added.set_adapted_sqnr_db(kernel.adapted_db);
  }
  return message;
}

Rounding FromProto(const v1::Rounding& message) {
  Rounding rounding{
      message.random(), message.fingerprint(), message.scheme(), message.samples(), {}};
  for (const v1::AdaptedKernel& kernel : message.kernels()) {
    rounding.kernels.push_back({kernel.constant(), kernel.axis(), kernel.node(), kernel.otherwise(),
                                kernel.elements(), kernel.moved(), kernel.nearest_sqnr_db(),
                                kernel.adapted_sqnr_db()});
  }
  return rounding;
}

std::string RoundingBytes(const Rounding& rounding) {
  return std::string(kRoundingMagic) + ToProto(rounding).SerializeAsString();
}

absl::StatusOr<Rounding> ReadRounding(const std::filesystem::path& path) {
  v1::Rounding message;
  QUENCH_RETURN_IF_ERROR(ReadMessageFile(path, kRoundingMagic, "rounding of weights", message));
  return FromProto(message);
}

}  // namespace quench::quantizer
