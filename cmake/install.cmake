# Install rules, the CMake package (kjit::kjit, kjit::kjit_static) and the pkg-config file.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kjit)

install(TARGETS kjit kjit_static EXPORT kjitTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/kjit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT kjitTargets NAMESPACE kjit:: DESTINATION ${package_dir})

configure_package_config_file(cmake/kjitConfig.cmake.in kjitConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(kjitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kjitConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/kjitConfigVersion.cmake
              cmake/sodium.cmake cmake/zstd.cmake cmake/yaml.cmake DESTINATION ${package_dir})

set(pc_requires "") # what libkjit.a does not have inside
foreach(dependency IN LISTS left_to_user)
  string(APPEND pc_requires " lib${dependency}")
  string(REPLACE "libyaml" "yaml-0.1" pc_requires "${pc_requires}") # its pkg-config file has this name
endforeach()

# The folders in kjit.pc are relative to the file itself, so that an installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/kjit.pc.in kjit.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kjit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
