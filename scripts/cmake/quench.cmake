# Compiler settings shared by every target, and the project's CMake helpers:
#   add_catalogue(target DIR deps...)   a library from every .cc of a catalogue folder (one file per entry)
#   add_service(name deps...)           a service binary `quench-<name>` from its main.cc
#   add_case_tests(binary labels)       registers a GoogleTest binary with ctest, with labels

find_program(QUENCH_CCACHE ccache)
if(QUENCH_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${QUENCH_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()
find_program(QUENCH_LLD NAMES ld.lld ld.lld-19)
if(QUENCH_LLD)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR QUENCH_LLD MATCHES "ld\\.lld$")
    add_link_options(-fuse-ld=lld)
  endif()
endif()

set(QUENCH_WARNINGS -Wall -Wextra -Wshadow -Wmissing-declarations -Wnon-virtual-dtor -Werror)

add_library(quench_options INTERFACE)
target_compile_options(quench_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${QUENCH_WARNINGS}>
  $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wshadow;-Wmissing-prototypes;-Werror>)
target_include_directories(quench_options INTERFACE ${CMAKE_SOURCE_DIR})

find_package(Threads REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)

function(add_catalogue target dir)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cc)
  add_library(${target} STATIC ${sources})
  target_link_libraries(${target} PUBLIC quench_options ${ARGN})
endfunction()

function(add_service name)
  add_executable(quench-${name} main.cc)
  target_link_libraries(quench-${name} PRIVATE quench_options ${ARGN})
endfunction()

function(add_case_tests binary labels)
  add_test(NAME ${binary} COMMAND ${binary})
  set_tests_properties(${binary} PROPERTIES LABELS "${labels}" TIMEOUT 1200)
endfunction()
