#include "services/codegen/kernels/tile_axis.h"

namespace quench::codegen {

PanelPrefetch PanelPrefetch::Plan(int64_t panel_bytes, int64_t bodies, int64_t tiles) {
  constexpr int64_t kLineBytes = 64;
  constexpr int64_t kWorthwhileBytes = 4096;
  PanelPrefetch plan;
  if (tiles < 1 || bodies < 1 || panel_bytes < kWorthwhileBytes) return plan;
  const int64_t lines = (panel_bytes + kLineBytes - 1) / kLineBytes;
  const int64_t per_body = (lines + tiles * bodies - 1) / (tiles * bodies);
  plan.lines = static_cast<int>(per_body);
  plan.slice_bytes = per_body * bodies * kLineBytes;
  plan.slices = (panel_bytes + plan.slice_bytes - 1) / plan.slice_bytes;
  return plan;
}

Dim TileAxis::Parts(SymbolTable& symbols) const {
  if (total.is_static()) return SplitEvenly(total.value(), most).parts();
  return symbols.CeilDiv(total, most);
}

void TileAxis::For(VectorBuilder& b, Int first, Int last,
                   const std::function<void(Int, int)>& body) const {
  if (total.is_static()) {
    const Split split = SplitEvenly(total.value(), most);
    b.For(first, Min(last, b.I(split.bigs)), 1,
          [&](Int i) { body(i * split.big, static_cast<int>(split.big)); });
    if (split.smalls == 0) return;
    b.For(Max(first, b.I(split.bigs)), last, 1, [&](Int i) {
      body((i - split.bigs) * (split.big - 1) + split.bigs * split.big,
           static_cast<int>(split.big - 1));
    });
    return;
  }
  const Int size = b.Size(total);
  const Int full = size / most;
  b.For(first, Min(last, full), 1, [&](Int i) { body(i * most, most); });
  if (most == 1) return;
  b.If(last > full && first <= full, [&] {
    const IntVar at = b.Variable(full * most);
    int part = 1;
    while (part * 2 < most) part *= 2;
    for (; part > 0; part /= 2) {
      b.If(size - at.Get() >= b.I(part), [&] {
        body(at.Get(), part);
        at.Set(at.Get() + part);
      });
    }
  });
}

Int TileAxis::Parts(VectorBuilder& b) const {
  return total.is_static() ? b.I(SplitEvenly(total.value(), most).parts())
                           : (b.Size(total) + (most - 1)) / most;
}

Int TileAxis::WholeTile(VectorBuilder& b) const {
  return total.is_static() ? b.I(SplitEvenly(total.value(), most).big)
                           : Min(b.Size(total), b.I(most));
}

void TileAxis::ForWhole(VectorBuilder& b, Int first, Int last,
                        const std::function<void(Int, Int)>& body) const {
  const Int pixels = WholeTile(b);
  const bool even = total.is_static() && SplitEvenly(total.value(), most).smalls == 0;
  b.For(first, last, 1, [&](Int i) {
    const Int own = Start(b, i);
    if (even) return body(own, b.I(0));
    // A smaller part begins with pixels of the one before it.
    const Int size = total.is_static() ? Start(b, i + 1) - own : Min(pixels, b.Size(total) - own);
    const Int begin = own - (pixels - size);
    body(begin, own - begin);
  });
}

Int TileAxis::Start(VectorBuilder& b, Int part) const {
  if (!total.is_static()) return Min(part * most, b.Size(total));
  const Split split = SplitEvenly(total.value(), most);
  if (split.smalls == 0) return part * split.big;
  return part * split.big - Max(part - split.bigs, b.I(0));
}

void TileAxis::ForAll(VectorBuilder& b, const std::function<void(Int, int)>& body) const {
  For(b, b.I(0), Parts(b), body);
}

Int FirstOfPanel(const PanelSplit& panels, Int p) {
  if (panels.even()) return p * panels.most();
  return (p * panels.vectors + (panels.count - 1)) / panels.count;
}

void ForPanel(VectorBuilder& b, const PanelSplit& panels, Int p, bool peel_last,
              const std::function<void(int, Int, bool)>& fn) {
  const Int first = FirstOfPanel(panels, p);
  const auto whole = static_cast<int>(panels.most());
  const int last_size = whole - (panels.even() ? 0 : 1);
  const auto last = [&] { fn(last_size, first, true); };
  if (peel_last && panels.count == 1) return last();
  const auto big = [&] { fn(whole, first, false); };
  const auto small = [&] { fn(whole - 1, first, false); };
  // The last one may be the only smaller one.
  const int64_t smalls = panels.even() ? 0 : panels.count * whole - panels.vectors;
  const auto others = [&] {
    if (smalls <= (peel_last ? 1 : 0)) return big();
    b.If(FirstOfPanel(panels, p + 1) - first == b.I(whole), big, small);
  };
  if (!peel_last) return others();
  b.If(p == b.I(panels.count - 1), last, others);
}

}  // namespace quench::codegen
