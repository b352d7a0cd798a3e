// The work of hdf5_file.h's child process: an HDF5 file, through libhdf5, into plain bytes.
#pragma once

#include <cstddef>
#include <span>

namespace quench::importer {

// The child's exit code where memory ran out.
inline constexpr int kHdf5OutOfMemory = 77;

// Copies every number of the file's data sets to `data_fd`, and to `index_fd` a JSON text that says what
// lies where:
//
//   {"attributes": {PATH: {NAME: [TEXT, ...]}},        texts alone
//    "datasets": {PATH: {"dtype": "f32", "dims": [2, 3], "offset": 64}
//                 or    {"refused": "is an external link"}}}
//   or {"error": "why the file cannot be read"}
//
// Groups whose names begin with `optimizer` are left out at the top. Reads nothing but `file`. False
// where an error of the system stood in the way.
bool CopyHdf5(std::span<const std::byte> file, int index_fd, int data_fd);

}  // namespace quench::importer
