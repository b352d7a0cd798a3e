// A 3x3 convolution's weights as the Winograd kernel streams them.
#pragma once

#include <cstdint>
#include <span>

namespace quench::codegen {

struct WinogradPanels {
  int outputs = 2;  // rows and columns of an output tile
  int64_t out_channels = 1, in_channels = 1;
  int64_t lanes = 8;
  int64_t vectors = 1;  // of output channels in a panel, at most

  int64_t points() const;  // products of a tile and channel
  int64_t elements() const;
};

// Transformed weights as [panels][points][blocks of input channels][lanes][panel's vectors][lanes], zeros
// where there is no channel. `weights` is [out channels][in channels][3][3], `out` has elements()
// zeros.
void PackWinogradPanels(const WinogradPanels& panels, std::span<const float> weights,
                        std::span<float> out);

}  // namespace quench::codegen
