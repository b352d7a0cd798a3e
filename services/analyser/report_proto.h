// Reports as messages of the analyser's contract, and back.
#pragma once

#include "quench/analyser/v1/analyser.pb.h"
#include "services/analyser/analyser.h"
#include "services/analyser/compare.h"
#include "services/analyser/diff.h"
#include "services/analyser/edit.h"
#include "services/analyser/infer.h"
#include "services/analyser/nodes.h"
#include "services/analyser/partition.h"
#include "services/analyser/tile.h"
#include "services/analyser/verify.h"

namespace quench::analyser {

v1::Ceilings ToProto(const Ceilings& ceilings);
Ceilings FromProto(const v1::Ceilings& message);

v1::ModelReport ToProto(const ModelReport& report);
ModelReport FromProto(const v1::ModelReport& message);

v1::VerifyResult ToProto(const VerifyReport& report);
VerifyReport FromProto(const v1::VerifyResult& message);

// Leaves out the parts' modules.
v1::PartitionReport ToProto(const PartitionReport& report);
PartitionReport FromProto(const v1::PartitionReport& message);

v1::ModuleFacts ToProto(const ModuleFacts& facts);
ModuleFacts FromProto(const v1::ModuleFacts& message);

v1::ModuleDiff ToProto(const ModuleDiff& diff);
ModuleDiff FromProto(const v1::ModuleDiff& message);

v1::TileReport ToProto(const TileReport& report);
TileReport FromProto(const v1::TileReport& message);

v1::EditReport ToProto(const EditReport& report);
EditReport FromProto(const v1::EditReport& message);

// Leaves out blobs.
v1::InferResult ToProto(const InferReport& report);
InferReport FromProto(const v1::InferResult& message);

v1::CompareResult ToProto(const CompareReport& report);
CompareReport FromProto(const v1::CompareResult& message);

}  // namespace quench::analyser
