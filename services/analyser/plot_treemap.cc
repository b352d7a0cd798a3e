// Squarified treemaps (Bruls, Huizing and van Wijk, Data Visualization 2000).
#include <fmt/format.h>

#include <algorithm>

#include "services/analyser/layer_tree.h"
#include "services/analyser/plots_internal.h"

namespace quench::analyser::internal {
namespace {

constexpr double kHeader = 15, kLegend = 24;
constexpr double kLeastSide = 2;  // of a rectangle that is drawn

struct TileBox {
  double x, y, width, height;
  double shorter() const { return std::min(width, height); }
};

struct Tile {
  const TreeRow* row;
  double size;
  std::vector<Tile> parts;
};

// The parts of a row, from `next` on, larger ones first; those without size are left out.
std::vector<Tile> TilesOf(const std::vector<TreeRow>& rows, int depth, size_t& next,
                          const std::function<int64_t(const Work&)>& size) {
  std::vector<Tile> tiles;
  while (next < rows.size() && rows[next].depth >= depth) {
    const TreeRow& row = rows[next++];
    Tile tile{&row, static_cast<double>(size(row.work)), TilesOf(rows, row.depth + 1, next, size)};
    if (tile.size > 0) tiles.push_back(std::move(tile));
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.size > b.size; });
  return tiles;
}

// The worst ratio of sides when `row`, whose areas sum to `sum`, lies along `side`.
double WorstRatio(double largest, double smallest, double sum, double side) {
  return std::max(side * side * largest / (sum * sum), sum * sum / (side * side * smallest));
}

// Rectangles for areas in decreasing order, which fill `box`.
std::vector<TileBox> Squarified(const std::vector<double>& areas, TileBox box) {
  std::vector<TileBox> boxes;
  for (size_t begin = 0; begin < areas.size();) {
    const double side = std::max(box.shorter(), 1e-9);
    double sum = areas[begin];
    size_t end = begin + 1;
    while (end < areas.size() && WorstRatio(areas[begin], areas[end], sum + areas[end], side) <=
                                     WorstRatio(areas[begin], areas[end - 1], sum, side))
      sum += areas[end++];
    const double thickness = sum / side;
    const bool upright = box.width >= box.height;  // a column at the left, else a row at the top
    double along = upright ? box.y : box.x;
    for (size_t i = begin; i < end; ++i) {
      const double length = areas[i] / thickness;
      boxes.push_back(upright ? TileBox{box.x, along, thickness, length}
                              : TileBox{along, box.y, length, thickness});
      along += length;
    }
    if (upright) {
      box.x += thickness;
      box.width -= thickness;
    } else {
      box.y += thickness;
      box.height -= thickness;
    }
    begin = end;
  }
  return boxes;
}

class TreemapWriter {
 public:
  TreemapWriter(const ModelReport& report, std::string unit, double all, Svg& svg)
      : report_(report), unit_(std::move(unit)), all_(all), svg_(svg) {}

  void Draw(const std::vector<Tile>& tiles, const TileBox& box) {
    double sum = 0;
    for (const Tile& tile : tiles) sum += tile.size;
    std::vector<double> areas;
    for (const Tile& tile : tiles) areas.push_back(tile.size / sum * box.width * box.height);
    const std::vector<TileBox> boxes = Squarified(areas, box);
    for (size_t i = 0; i < tiles.size(); ++i) {
      if (boxes[i].shorter() >= kLeastSide) DrawTile(tiles[i], boxes[i]);
    }
  }

 private:
  void DrawTile(const Tile& tile, const TileBox& box) {
    const std::string title = fmt::format("{}: {} {}, {:.2f} %", tile.row->name,
                                          ShortCount(tile.size), unit_, 100 * tile.size / all_);
    if (tile.row->layer >= 0) {
      const LayerReport& layer = report_.layers[static_cast<size_t>(tile.row->layer)];
      svg_.Rect("tile " + KindClass(layer.kind), box.x, box.y, box.width, box.height, title);
      Label("on", tile.row->name, box, 12);
      if (box.height > 30) Label("on", ShortCount(tile.size), box, 25);
      return;
    }
    svg_.Rect("scope", box.x, box.y, box.width, box.height, title);
    TileBox inside = box;
    if (box.width > 50 && box.height > 3 * kHeader) {
      Label("strong", fmt::format("{} {}", tile.row->name, ShortCount(tile.size)), box, 11);
      inside = {box.x + 2, box.y + kHeader, box.width - 4, box.height - kHeader - 2};
    }
    Draw(tile.parts, inside);
  }
  // As much of `text` as fits.
  void Label(std::string_view kind, const std::string& text, const TileBox& box, double down) {
    const auto most = static_cast<size_t>(std::max(0.0, (box.width - 6) / 6.2));
    if (most < 3 || box.height < down + 3) return;
    svg_.Text(kind, box.x + 4, box.y + down,
              text.size() <= most ? text : text.substr(0, most - 1) + "…");
  }

  const ModelReport& report_;
  const std::string unit_;
  const double all_;
  Svg& svg_;
};

}  // namespace

Svg TreemapPlot(const ModelReport& report, const std::function<int64_t(const Work&)>& size,
                const std::string& unit) {
  Svg svg(kPlotWidth, 460);
  const std::vector<TreeRow> rows = LayerTree(report, 0);
  size_t next = 0;
  const std::vector<Tile> tiles = TilesOf(rows, 1, next, size);
  const auto all = static_cast<double>(size(report.work));
  KindLegend(report, [&](const LayerReport& layer) { return size(layer.work) > 0; }, 2, 14, svg);
  svg.Text("strong", kPlotWidth - 2, 14, fmt::format("{} {}", ShortCount(all), unit), "end");
  if (tiles.empty()) {
    svg.Text("", kPlotWidth / 2.0, 200, "none", "middle");
    return svg;
  }
  TreemapWriter(report, unit, all, svg)
      .Draw(tiles, {0, kLegend, kPlotWidth, svg.height() - kLegend});
  return svg;
}

}  // namespace quench::analyser::internal
