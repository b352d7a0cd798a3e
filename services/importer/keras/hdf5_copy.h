// The work of hdf5_file.h's child process: converts an HDF5 file by libhdf5 into plain bytes.
#pragma once

#include <cstddef>
#include <span>

namespace quench::importer {

// The child's exit code if memory ran out.
inline constexpr int kHdf5OutOfMemory = 77;

// Copies every number of the file's data sets to `data_fd`, and to `index_fd` a JSON text with
// their places:
//
//   {"attributes": {PATH: {NAME: [TEXT, ...]}},        texts alone
//    "datasets": {PATH: {"dtype": "f32", "dims": [2, 3], "offset": 64}
//                 or    {"refused": "is an external link"}}}
//   or {"error": "why the file cannot be read"}
//
// Top-level groups whose names begin with `optimizer` are left out. Reads nothing but `file`. False
// after an error of the system.
bool CopyHdf5(std::span<const std::byte> file, int index_fd, int data_fd);

}  // namespace quench::importer
