# Written by `quench compile --with-runtime`: this folder for CMake, by find_package(quench_rt PATHS FOLDER) or
# include(FOLDER/quench_rt-config.cmake); of several such folders by include, since CMake remembers the first that it found.
#   quench_rt::quench_rt   the runtime as a shared library, quench_rt::static as a static one
include(CMakeFindDependencyMacro)
find_dependency(Threads)
if(NOT TARGET quench_rt::quench_rt)
  add_library(quench_rt::quench_rt SHARED IMPORTED)
  set_target_properties(quench_rt::quench_rt PROPERTIES
    IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/libquench_rt.so"
    IMPORTED_SONAME libquench_rt.so
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
  add_library(quench_rt::static STATIC IMPORTED)
  set_target_properties(quench_rt::static PROPERTIES
    IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/libquench_rt.a"
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS}")
endif()
