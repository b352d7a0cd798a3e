// SVG as text. Colours are classes of page/plots.css.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quench::analyser {

class Svg {
 public:
  Svg(int width, int height) : width_(width), height_(height) {}

  // `title` is plain text, shown as a tooltip.
  void Rect(std::string_view kind, double x, double y, double width, double height,
            const std::string& title = "");
  void Circle(std::string_view kind, double x, double y, double radius,
              const std::string& title = "");
  void Line(std::string_view kind, double x1, double y1, double x2, double y2);
  void Path(std::string_view kind, const std::string& data);
  // `anchor` is start, middle or end.
  void Text(std::string_view kind, double x, double y, const std::string& text,
            std::string_view anchor = "start");
  int width() const { return width_; }
  int height() const { return height_; }
  // An element for a page that has the style; `label` describes it to screen readers.
  std::string Inline(const std::string& label) const;
  // A separate file, with the style.
  std::string File(const std::string& label) const;

 private:
  std::string Element(const std::string& label, std::string_view inside) const;

  int width_, height_;
  std::string text_;
};

// The style of all plots, for pages.
std::string_view PlotStyle();

// The class for ops::WorkKindName: "kind-convolution"; "kind-other" for "".
std::string KindClass(const std::string& kind);

// 25557032: "25.6 M".
std::string ShortCount(double value);
// 1536: "1.54 kB".
std::string ShortBytes(double bytes);
// 0.0012: "1.2 ms".
std::string ShortTime(double seconds);

}  // namespace quench::analyser
