// A convolution's weights in the order in which the Winograd kernel streams them.
#pragma once

#include <cstdint>
#include <span>

#include "services/codegen/kernels/winograd_transform.h"

namespace quench::codegen {

struct WinogradPanels {
  WinogradSize size;
  int64_t out_channels = 1, in_channels = 1;
  int64_t lanes = 8;
  int64_t vectors = 1;  // of output channels in a panel, at most

  int64_t elements() const;
};

// Transformed weights as [panels][points][blocks of input channels][lanes][panel's vectors][lanes], zeros
// where there is no channel. `weights` is [out channels][in channels][taps][taps], `out` has elements()
// zeros.
void PackWinogradPanels(const WinogradPanels& panels, std::span<const float> weights,
                        std::span<float> out);

}  // namespace quench::codegen
