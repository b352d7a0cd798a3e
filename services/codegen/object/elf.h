// Object files of Linux and Android.
#pragma once

#include "common/base/elf_file.h"
#include "services/codegen/object/object_format.h"

namespace quench::codegen {

WeightObject ElfWeightObject(const Target& target, const std::string& symbol, uint64_t size);
std::vector<std::string> ElfSharedArguments(const Target& target, const std::string& name);
std::vector<std::string> ElfRelocatableArguments(const Target& target);

inline constexpr ObjectFormat kElf = {
    .name = "elf",
    .described = kAnElfFile,
    .address_section = ".data.rel.ro",
    .weights_offset = 64,  // past the header of either class, at the section's own alignment
    .weight_object = &ElfWeightObject,
    .shared_arguments = &ElfSharedArguments,
    .relocatable_arguments = &ElfRelocatableArguments,
    .begins = &IsElf,
};

}  // namespace quench::codegen
