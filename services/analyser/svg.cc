#include "services/analyser/svg.h"

#include <fmt/format.h>

#include <cmath>

#include "services/analyser/html.h"

namespace quench::analyser {
namespace {

constexpr std::string_view kPlotStyle =
#include "embedded/plots.css.inc"
    ;

std::string TitleElement(const std::string& title) {
  return title.empty() ? "/>" : fmt::format("><title>{}</title>", Escaped(title));
}

// Coordinates to a tenth: "12.5", "3".
std::string Place(double value) { return fmt::format("{:g}", std::round(value * 10) / 10); }

std::string WithPrefix(double value, std::string_view unit) {
  for (const auto& [prefix, scale] :
       {std::pair{"T", 1e12}, std::pair{"G", 1e9}, std::pair{"M", 1e6}, std::pair{"k", 1e3}}) {
    if (value >= 0.9995 * scale) return fmt::format("{:.3g} {}{}", value / scale, prefix, unit);
  }
  return unit.empty() ? fmt::format("{:.3g}", value) : fmt::format("{:.3g} {}", value, unit);
}

}  // namespace

void Svg::Rect(std::string_view kind, double x, double y, double width, double height,
               const std::string& title) {
  text_ += fmt::format(R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}"{})", kind, Place(x),
                       Place(y), Place(width), Place(height), TitleElement(title));
  text_ += title.empty() ? "\n" : "</rect>\n";
}

void Svg::Circle(std::string_view kind, double x, double y, double radius,
                 const std::string& title) {
  text_ += fmt::format(R"(<circle class="{}" cx="{}" cy="{}" r="{}"{})", kind, Place(x), Place(y),
                       Place(radius), TitleElement(title));
  text_ += title.empty() ? "\n" : "</circle>\n";
}

void Svg::Line(std::string_view kind, double x1, double y1, double x2, double y2) {
  text_ += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", kind,
                       Place(x1), Place(y1), Place(x2), Place(y2));
}

void Svg::Path(std::string_view kind, const std::string& data) {
  text_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", kind, data);
}

void Svg::Text(std::string_view kind, double x, double y, const std::string& text,
               std::string_view anchor) {
  text_ += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", kind,
                       Place(x), Place(y), anchor, Escaped(text));
}

std::string Svg::Element(const std::string& label, std::string_view inside) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">\n{}{}</svg>\n",
      width_, height_, Escaped(label), inside, text_);
}

std::string Svg::Inline(const std::string& label) const { return Element(label, ""); }

std::string Svg::File(const std::string& label) const {
  return Element(label, fmt::format("<style>\n{}</style>\n<rect class=\"paper\" width=\"{}\" "
                                    "height=\"{}\"/>\n",
                                    kPlotStyle, width_, height_));
}

std::string_view PlotStyle() { return kPlotStyle; }

std::string KindClass(const std::string& kind) {
  return "kind-" + (kind.empty() ? std::string("other") : kind);
}

std::string ShortCount(double value) { return WithPrefix(value, ""); }

std::string ShortBytes(double bytes) { return WithPrefix(bytes, "B"); }

std::string ShortTime(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", 1e3 * seconds);
  return fmt::format("{:.3g} us", 1e6 * seconds);
}

}  // namespace quench::analyser
