#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "services/analyser/tile.h"

namespace quench::analyser {
namespace {

bool Fits(const TiledProduct& product) { return product.products() == 1; }

}  // namespace

std::string ToTable(const TileReport& report) {
  int64_t cut = 0, pieces = 0;
  for (const TiledProduct& product : report.products) {
    if (Fits(product)) continue;
    ++cut;
    pieces += product.products();
  }
  const TileLimits& limits = report.limits;
  std::string text = fmt::format("limits m {}, n {}, k {}: {} of {} products cut, into {}\n",
                                 limits.m, limits.n, limits.k, cut, report.products.size(), pieces);
  if (!report.products.empty()) {
    text += fmt::format("  {:<32} {:<8} {:>8} {:>8} {:>8}  {:>15} {:>9}\n", "node", "operator", "m",
                        "n", "k", "pieces", "products");
  }
  for (const TiledProduct& product : report.products) {
    const std::string pieces_text = Fits(product) ? "fits"
                                                  : fmt::format("{} x {} x {}", product.tiles_m,
                                                                product.tiles_n, product.tiles_k);
    text +=
        fmt::format("  {:<32} {:<8} {:>8} {:>8} {:>8}  {:>15} {:>9}\n", product.node, product.op,
                    product.m, product.n, product.k, pieces_text, product.products());
  }
  for (const auto& [op, count] : report.others)
    text += fmt::format("  left alone: {} {}\n", count, op);
  if (report.samples > 0) {
    text += fmt::format("largest error {:.3g} of the largest value, on {} random input{}\n",
                        report.error, report.samples, report.samples == 1 ? "" : "s");
  }
  return text;
}

std::string ToJson(const TileReport& report) {
  nlohmann::json products = nlohmann::json::array();
  for (const TiledProduct& product : report.products) {
    products.push_back({{"node", product.node},
                        {"op", product.op},
                        {"m", product.m},
                        {"n", product.n},
                        {"k", product.k},
                        {"tiles_m", product.tiles_m},
                        {"tiles_n", product.tiles_n},
                        {"tiles_k", product.tiles_k},
                        {"products", product.products()}});
  }
  const nlohmann::json json = {
      {"limits", {{"m", report.limits.m}, {"n", report.limits.n}, {"k", report.limits.k}}},
      {"products", products},
      {"others", report.others},
      {"samples", report.samples},
      {"error", report.error}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
