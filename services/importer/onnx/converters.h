// Declares the converter functions that onnx_ops.def names.
#pragma once

#include "services/importer/onnx/convert.h"

namespace quench::importer {

// convert_forms.cc: older forms of ONNX operators, brought up to the newest.
absl::Status ConvertSame(Converter& c);        // nothing changed that matters
absl::Status ConvertArithmetic(Converter& c);  // opset < 7: attributes `broadcast` and `axis`
absl::Status ConvertAxes(Converter& c);        // attribute `axes` became input 1
absl::Status ConvertBatchNormalization(Converter& c);  // `spatial`, training outputs
absl::Status ConvertCast(Converter& c);                // `to` was a string
absl::Status ConvertCastLike(Converter& c);            // a Cast to a type that is known here
absl::Status ConvertClip(Converter& c);                // min and max became inputs
absl::Status ConvertConcat(Converter& c);              // opset < 4: axis defaults to 1
absl::Status ConvertConstant(Converter& c);
absl::Status ConvertDft(Converter& c);                 // axis became input 2
absl::Status ConvertDropout(Converter& c);             // the identity in inference
absl::Status ConvertGemm(Converter& c);                // opset < 7: attribute `broadcast`
absl::Status ConvertGridSample(Converter& c);          // opset < 20: mode names
absl::Status ConvertGroupNormalization(Converter& c);  // opset < 21: scale and bias per group
absl::Status ConvertPad(Converter& c);                 // pads and value became inputs
absl::Status ConvertRecurrent(Converter& c);           // opset < 7: `output_sequence`
absl::Status ConvertReshape(Converter& c);             // opset < 5: attribute `shape`
absl::Status ConvertResize(
    Converter& c);  // opset 10: no roi; empty roi and scales are omitted ones
absl::Status ConvertRoiAlign(Converter& c);  // opset < 16: no half-pixel shift
absl::Status ConvertScan(Converter& c);      // opset 8 had a batch axis
absl::Status ConvertScatter(Converter& c);   // renamed
absl::Status ConvertSlice(Converter& c);     // starts, ends, axes became inputs
absl::Status ConvertSoftmax(Converter& c);   // opset < 13: flattens from `axis` on
absl::Status ConvertSplit(Converter& c);     // `split` became input 1
absl::Status ConvertTopK(Converter& c);      // `k` became input 1
absl::Status ConvertUpsample(Converter& c);  // is Resize now

// convert_other.cc: operators of old previews and of ONNX Runtime.
absl::Status ConvertAffine(Converter& c);
absl::Status ConvertBiasGelu(Converter& c);
absl::Status ConvertCrop(Converter& c);
absl::Status ConvertDynamicQuantizeMatMul(Converter& c);
absl::Status ConvertFastGelu(Converter& c);
absl::Status ConvertFusedConv(Converter& c);
absl::Status ConvertFusedGemm(Converter& c);
absl::Status ConvertFusedMatMul(Converter& c);
absl::Status ConvertImageScaler(Converter& c);
absl::Status ConvertMatMulIntegerToFloat(Converter& c);
absl::Status ConvertMatMulNBits(Converter& c);
absl::Status ConvertQLinearBinary(Converter& c);
absl::Status ConvertQLinearConcat(Converter& c);
absl::Status ConvertQLinearUnary(Converter& c);
absl::Status ConvertQuickGelu(Converter& c);
absl::Status ConvertScaledTanh(Converter& c);
absl::Status ConvertSkipLayerNormalization(Converter& c);

// canonicalise.cc: bodies.
absl::Status ConvertControl(Converter& c);

}  // namespace quench::importer
