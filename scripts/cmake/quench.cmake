# Compiler settings shared by every target, and the project's CMake helpers:
#   add_catalogue(target DIR deps...)   a library from every .cc of a catalogue folder (one file per entry)
#   add_service(name deps...)           library quench_<name>_service from service.cc, binary `quench-<name>` from main.cc
#   add_case_tests(binary labels ...)   registers a GoogleTest binary with ctest, with labels, in so many parts
#   add_machine_code_tests(binary labels ...)   the same for one that tests generated code: run of the release build
#   add_driven_test(name labels ...)    registers a program that drives ours
#   embed_texts(target files...)        each file as a string literal that C++ includes: `page/report.js` is
#                                       "embedded/report.js.inc"
#   optimise_lightly(targets...)        what is never where time goes;
#   optimise_always(targets...)         what tests spend their time in
#   around_calls(targets...)            libraries around gRPC: optimised lightly, with its headers precompiled;
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

set(QUENCH_LLVM 19 CACHE STRING "Version of LLVM and lld that code is generated with: 19, or 22 (services/codegen/emit/compat.h)")
set(QUENCH_LLVM_FOLDER /usr/lib/llvm-${QUENCH_LLVM}/lib/cmake)

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

# Optimization. Code that takes time is compiled as the preset says (CMAKE_CXX_FLAGS); everything around it - calls, commands,
# readers of models, tests - with QUENCH_LIGHT after that, because optimizing it is a third of a build and saves nobody anything.
set(QUENCH_LIGHT "" CACHE STRING "Optimisation flag of code that is never where time goes (default: the preset's)")
function(optimise_lightly)
  set_target_properties(${ARGN} PROPERTIES QUENCH_LIGHT ON)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE ${QUENCH_LIGHT})
  endforeach()
endfunction()

# Code that tests spend their time in (interpreted models, sums over channels): optimized even if
# the preset optimizes nothing.
function(optimise_always)
  if(NOT CMAKE_CXX_FLAGS MATCHES "-O[123]")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O1)
    endforeach()
    set_target_properties(${ARGN} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # which hold for one level
  endif()
endfunction()

# Code that includes gRPC's headers.
function(around_calls)
  optimise_lightly(${ARGN})
  set_target_properties(${ARGN} PROPERTIES QUENCH_HEADERS grpc)
endfunction()
function(tests_around_calls)
  set_target_properties(${ARGN} PROPERTIES QUENCH_HEADERS grpc)
endfunction()

# Precompiled headers. Parsing the standard library, absl and fmt is a third of a build: done once for each set of headers
# and flags, by a library that holds nothing else, so that no target waits for another that it does not use. Our own
# headers are not among them, so that no file forgets to include what it uses. Only what many files include: each header
# here costs every file the templates that it leaves to be instantiated (0.05 s <future>).
set(QUENCH_PRECOMPILED
  <absl/status/status.h> <absl/status/statusor.h> <fmt/format.h> <fmt/ranges.h>
  <algorithm> <array> <cmath> <cstring> <filesystem> <functional> <map> <memory> <numeric> <optional> <set> <span>
  <string> <string_view> <unordered_map> <utility> <variant> <vector>)
set(QUENCH_PRECOMPILED_GRPC <grpcpp/grpcpp.h> <grpcpp/support/server_callback.h>)

# precompile_headers(NAME headers...): library quench_headers_NAME.
function(precompile_headers name)
  set(source ${CMAKE_BINARY_DIR}/headers/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Owns precompiled headers.\n")
  add_library(quench_headers_${name} OBJECT ${source})
  target_link_libraries(quench_headers_${name} PRIVATE quench_options absl::status absl::statusor spdlog::spdlog)
  target_precompile_headers(quench_headers_${name} PRIVATE ${QUENCH_PRECOMPILED} ${ARGN})
endfunction()

# share_precompiled_headers(FOLDER KIND): every C++ target below FOLDER that has no precompiled headers of its own uses those
# of quench_headers_KIND, or of its own wish (QUENCH_HEADERS) and level of optimisation.
function(share_precompiled_headers folder kind)
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${subfolders})
    share_precompiled_headers(${subfolder} ${kind})
  endforeach()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(sources ${target} SOURCES)
    get_target_property(own ${target} PRECOMPILE_HEADERS)
    get_target_property(disabled ${target} DISABLE_PRECOMPILE_HEADERS)
    get_target_property(light ${target} QUENCH_LIGHT)
    get_target_property(wish ${target} QUENCH_HEADERS)
    if(own OR disabled OR NOT sources MATCHES "\\.cc(;|$)" OR sources MATCHES "\\.c(;|$)")
      continue()
    endif()
    set(headers ${kind})
    if(wish)
      string(APPEND headers _${wish})
    elseif(light AND kind STREQUAL "library")
      string(APPEND headers _light)
    endif()
    target_precompile_headers(${target} REUSE_FROM quench_headers_${headers})
  endforeach()
endfunction()

# Every preset but `debug` compiles several files at a time (CMAKE_UNITY_BUILD): parsing headers and what they instantiate
# is most of a build. So names in anonymous namespaces are a library's, not a file's; tests have a namespace for each file.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

add_compile_options(-pthread)  # gRPC brings it for some; precompiled headers hold for one set of flags
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # lets ccache see through them
else()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    add_compile_definitions(__SANITIZE_ADDRESS__=1)  # GCC's; clang has it from 21 on
  endif()
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH ${CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH} -Xclang -fno-pch-timestamp)  # likewise
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
  add_library(${target} ${sources})
  target_link_libraries(${target} PUBLIC quench_options ${ARGN})
endfunction()

function(add_service name)
  add_library(quench_${name}_service service.cc)
  target_link_libraries(quench_${name}_service PUBLIC quench_steps ${ARGN})
  around_calls(quench_${name}_service)
  add_executable(quench-${name} main.cc)
  target_link_libraries(quench-${name} PRIVATE quench_${name}_service)
endfunction()

# tests/costs.tsv: `name<TAB>seconds`, as scripts/test measured them; the longest begin first, so that none runs alone at
# the end. A row for each test: read once.
set(QUENCH_COSTS ${CMAKE_SOURCE_DIR}/tests/costs.tsv)
set(rows "")
if(EXISTS ${QUENCH_COSTS})  # images are built without tests
  file(STRINGS ${QUENCH_COSTS} rows REGEX "^[^#]")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${QUENCH_COSTS})
endif()
foreach(row ${rows})
  string(REPLACE "\t" ";" cells "${row}")
  list(GET cells 0 name)
  list(GET cells 1 QUENCH_COST_${name})
endforeach()

# Where results of this build's tests go (scripts/test_summary), and the table that scripts/test_selection reads.
cmake_path(GET CMAKE_BINARY_DIR FILENAME QUENCH_PRESET)
set(QUENCH_RESULTS ${CMAKE_SOURCE_DIR}/build/test-results/${QUENCH_PRESET})
file(WRITE ${CMAKE_BINARY_DIR}/tests.tsv "")
set(QUENCH_RELEASE ${CMAKE_SOURCE_DIR}/build/release/bin)

# list_test(NAME LABELS NEEDS RELEASE NAMES): what every kind of test has: its cost, and its row in tests.tsv. NEEDS and RELEASE:
# targets that are built before it, in this build and in the release build. NAMES: the files that hold the names of what it tests.
function(list_test name labels needs release names)
  set_tests_properties(${name} PROPERTIES LABELS "${labels}")
  if(QUENCH_COST_${name})
    set_tests_properties(${name} PROPERTIES COST ${QUENCH_COST_${name}})
  endif()
  file(APPEND ${CMAKE_BINARY_DIR}/tests.tsv "${name}\t${labels}\t${needs}\t${release}\t${names}\n")
endfunction()

# add_driven_test(NAME LABELS [NEEDS targets...] [RELEASE targets...] [NAMES files...] [SECONDS n] COMMAND words...)
# A program of its own that drives ours: those of this build in NEEDS, those of the release build (${QUENCH_RELEASE}) in RELEASE.
# NAMES where it takes QUENCH_TEST_PATTERN.
function(add_driven_test name labels)
  cmake_parse_arguments(PARSE_ARGV 2 test "" "SECONDS" "NEEDS;RELEASE;NAMES;COMMAND")
  add_test(NAME ${name} COMMAND ${test_COMMAND})
  if(NOT test_SECONDS)
    set(test_SECONDS 1800)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${test_SECONDS} SKIP_RETURN_CODE 77
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;GTEST_OUTPUT=xml:${QUENCH_RESULTS}/")
  list_test(${name} "${labels}" "${test_NEEDS}" "${test_RELEASE}" "${test_NAMES}")
endfunction()

# add_case_tests(BINARY LABELS [SHARDS n] [NEEDS targets...] [RELEASE targets...]): a GoogleTest program, as so many tests that each
# run a part of it. NEEDS and RELEASE: what it runs beside itself.
function(add_case_tests binary labels)
  cmake_parse_arguments(PARSE_ARGV 2 test "" "SHARDS" "NEEDS;RELEASE")
  add_gtest_shards(${binary} "${labels}" ${binary} $<TARGET_FILE:${binary}> "${test_SHARDS}" "${binary};${test_NEEDS}" "${test_RELEASE}")
endfunction()

# add_machine_code_tests(BINARY LABELS [SHARDS n]): a GoogleTest program about the code that ours generates for every CPU. Sanitizers
# see nothing of that code, and the compiler behind it takes most of the time: the release build's program runs on every commit,
# this build's (label sanitized) with scripts/test --full.
function(add_machine_code_tests binary labels)
  cmake_parse_arguments(PARSE_ARGV 2 test "" "SHARDS" "")
  set_target_properties(${binary} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_gtest_shards(${binary} "${labels}" ${binary} ${QUENCH_RELEASE}/${binary} "${test_SHARDS}" "" ${binary})
  add_gtest_shards(${binary}_sanitized sanitized ${binary} $<TARGET_FILE:${binary}> "${test_SHARDS}" ${binary} "")
endfunction()

# add_gtest_shards(NAME LABELS BINARY FILE SHARDS NEEDS RELEASE): FILE, the program of target BINARY, as tests NAME_1, NAME_2, ...
function(add_gtest_shards test_name labels binary file shards needs release)
  if(NOT shards)
    set(shards 1)
  endif()
  list(FILTER needs EXCLUDE REGEX "^$")
  get_target_property(sources ${binary} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  list(TRANSFORM sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/]")
  foreach(shard RANGE 1 ${shards})
    set(name ${test_name})
    set(environment "")
    if(shards GREATER 1)
      set(name ${test_name}_${shard})
      math(EXPR index "${shard} - 1")
      set(environment "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
    endif()
    add_test(NAME ${name} COMMAND ${file})
    set_tests_properties(${name} PROPERTIES TIMEOUT 2400 ENVIRONMENT "GTEST_OUTPUT=xml:${QUENCH_RESULTS}/${name}.xml;${environment}")
    list_test(${name} "${labels}" "${needs}" "${release}" "${sources}")
  endforeach()
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
