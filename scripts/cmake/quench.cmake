# Compiler settings shared by every target, and the project's CMake helpers:
#   add_catalogue(target DIR deps...)   a library from every .cc of a catalogue folder (one file per entry)
#   add_service(name deps...)           library quench_<name>_service from service.cc, binary `quench-<name>` from main.cc
#   add_case_tests(binary labels [SECONDS])   registers a GoogleTest binary with ctest, with labels; those that take
#                                       long begin first, so that none runs alone at the end
#   embed_texts(target files...)        each file as a string literal that C++ includes: `page/report.js` is
#                                       "embedded/report.js.inc"
#   around_calls(targets...)            libraries around gRPC: headers precompiled once, light optimisation;
#                                       tests_around_calls(targets...) the same headers for their tests

find_program(QUENCH_CCACHE ccache)
if(QUENCH_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/scripts/cmake/launch_compiler ${CMAKE_SOURCE_DIR} ${QUENCH_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()
# GCC looks for a program of exactly this name; Debian's lld-19 has it in LLVM's own folder.
find_program(QUENCH_LD_LLD NAMES ld.lld PATHS /usr/lib/llvm-19/bin)
if(QUENCH_LD_LLD)
  cmake_path(GET QUENCH_LD_LLD PARENT_PATH QUENCH_LD_FOLDER)
  add_link_options(-fuse-ld=lld -B${QUENCH_LD_FOLDER})
endif()

add_link_options(-Wl,--build-id=sha1)  # common/base/build_id.h: part of the key of every cached result

set(QUENCH_WARNINGS -Wall -Wextra -Wshadow -Wmissing-declarations -Wnon-virtual-dtor -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_FLAGS MATCHES "-O[123g]")
  # GCC 12's optimiser warns of impossible lengths in libstdc++'s own copies of short strings (char_traits.h:431), and of
  # LLVM's classes that bring an operator new and delete each, of which it inlines one.
  list(APPEND QUENCH_WARNINGS -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-mismatched-new-delete)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # std::stable_sort of the C++ library uses what it deprecates.
  list(APPEND QUENCH_WARNINGS -Wno-deprecated-declarations -Wno-pass-failed)  # loops marked for the vectoriser stay scalar in builds for fuzzing
endif()

add_library(quench_options INTERFACE)
target_compile_options(quench_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${QUENCH_WARNINGS}>
  $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wshadow;-Wmissing-prototypes;-Werror>)
target_include_directories(quench_options INTERFACE ${CMAKE_SOURCE_DIR})

# Parsing the standard library, absl and fmt is a third of a build: done once, in quench_base, and once with gtest,
# in test_base. Our own headers are not among them, so that no file forgets to include what it uses. Only what many
# files include: each header here costs every file the templates that it leaves to be instantiated (0.05 s <future>).
set(QUENCH_PRECOMPILED
  <absl/status/status.h> <absl/status/statusor.h> <fmt/format.h> <fmt/ranges.h>
  <algorithm> <array> <cmath> <cstring> <filesystem> <functional> <map> <memory> <numeric> <optional> <set> <span>
  <string> <string_view> <unordered_map> <utility> <variant> <vector>)

# What stands around calls and commands: never where time goes, so that release builds do not spend a third of their own on
# optimising it; and all of it sees gRPC's headers, which share one more set, that of quench_rpc_client.
set(QUENCH_PRECOMPILED_GRPC ${QUENCH_PRECOMPILED} <grpcpp/grpcpp.h> <grpcpp/support/server_callback.h>)
function(optimise_lightly)
  if(CMAKE_CXX_FLAGS MATCHES "-O2")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O1)
    endforeach()
  endif()
  check_lightly(${ARGN})
endfunction()
# Checks of alignment, in every template of gRPC's, are a fifth of what these take to build; what looks at tensors' bytes
# keeps them.
function(check_lightly)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -fno-sanitize=alignment)
    endforeach()
  endif()
endfunction()
function(around_calls)
  optimise_lightly(${ARGN})
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM quench_rpc_client)
  endforeach()
endfunction()

# The same for tests and benchmarks of these: executables, with GoogleTest, that share test_rpc's.
function(tests_around_calls)
  check_lightly(${ARGN})
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM test_rpc)
  endforeach()
endfunction()

# Every C++ target below `folder` that has no precompiled headers of its own uses those of `owner`, if it is compiled
# as that is: libraries are position-independent in another way than executables.
function(reuse_precompiled_headers folder owner)
  get_target_property(wanted ${owner} TYPE)
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${subfolders})
    reuse_precompiled_headers(${subfolder} ${owner})
  endforeach()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    get_target_property(own ${target} PRECOMPILE_HEADERS)
    get_target_property(reused ${target} PRECOMPILE_HEADERS_REUSE_FROM)
    if(NOT own AND NOT reused AND sources MATCHES "\\.cc(;|$)" AND NOT sources MATCHES "\\.c(;|$)" AND type STREQUAL wanted)
      target_precompile_headers(${target} REUSE_FROM ${owner})
    endif()
  endforeach()
endfunction()
# GCC's presets but `debug` compile our libraries several files at a time (CMAKE_UNITY_BUILD): parsing headers and what
# they instantiate is most of a build. `debug` takes each file by itself: clang-tidy reads its list of commands, and a file
# that forgets to include what it uses fails there. So names in anonymous namespaces are a library's, not a file's.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)

add_compile_options(-pthread)  # gRPC brings it for some; precompiled headers hold for one set of flags
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # lets ccache see through them
endif()

find_package(Threads REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(Eigen3 3.4 CONFIG REQUIRED)

function(add_catalogue target dir)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cc)
  add_library(${target} STATIC ${sources})
  target_link_libraries(${target} PUBLIC quench_options ${ARGN})
endfunction()

function(add_service name)
  add_library(quench_${name}_service STATIC service.cc)
  target_link_libraries(quench_${name}_service PUBLIC quench_steps ${ARGN})
  around_calls(quench_${name}_service)
  add_executable(quench-${name} main.cc)
  target_link_libraries(quench-${name} PRIVATE quench_${name}_service)
endfunction()

function(add_case_tests binary labels)
  add_test(NAME ${binary} COMMAND ${binary})
  set_tests_properties(${binary} PROPERTIES LABELS "${labels}" TIMEOUT 1200)
  if(ARGN)
    set_tests_properties(${binary} PROPERTIES COST ${ARGN})
  endif()
endfunction()

function(embed_texts target)
  foreach(file ${ARGN})
    cmake_path(GET file FILENAME name)
    file(READ ${file} text)
    string(FIND "${text}" ")embedded\"" ends)
    if(NOT ends EQUAL -1)
      message(FATAL_ERROR "${file}: has what ends the literal that it becomes")
    endif()
    file(CONFIGURE OUTPUT embedded/${name}.inc CONTENT "R\"embedded(@text@)embedded\"\n" @ONLY)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
