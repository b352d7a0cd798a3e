# Rules for `cmake --install BUILD --component quench_rt`: the runtime, its headers, and how CMake
# (find_package(quench_rt)) and pkg-config find them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Headers name one another by their place in this repository; installed they lie beside one another.
set(installed ${CMAKE_CURRENT_BINARY_DIR}/installed)
foreach(header abi.h quench_rt.h quench.hpp)
  file(READ ${header} text)
  string(REPLACE "#include \"common/runtime/" "#include \"" text "${text}")
  file(CONFIGURE OUTPUT ${installed}/${header} CONTENT "${text}" @ONLY NEWLINE_STYLE UNIX)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  install(FILES ${installed}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quench_rt COMPONENT quench_rt)
endforeach()

install(TARGETS quench_rt_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT quench_rt)
install(TARGETS quench_rt ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT quench_rt)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/quench_rt)
configure_package_config_file(quench_rt-config.cmake.in ${installed}/quench_rt-config.cmake
  INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${installed}/quench_rt-config-version.cmake COMPATIBILITY SameMajorVersion)
configure_file(quench_rt.pc.in ${installed}/quench_rt.pc @ONLY)
install(FILES ${installed}/quench_rt-config.cmake ${installed}/quench_rt-config-version.cmake
  DESTINATION ${package} COMPONENT quench_rt)
install(FILES ${installed}/quench_rt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT quench_rt)
