# `cmake --install` gives the program, the library, its public headers and a CMake package:
#   find_package(blockscale REQUIRED)
#   target_link_libraries(app PRIVATE blockscale::blockscale)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/blockscale)

install(TARGETS blockscale_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS blockscale EXPORT blockscaleTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT blockscaleTargets NAMESPACE blockscale:: DESTINATION ${package_dir})

configure_package_config_file(cmake/blockscaleConfig.cmake.in
  ${PROJECT_BINARY_DIR}/blockscaleConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/blockscaleConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/blockscaleConfig.cmake
              ${PROJECT_BINARY_DIR}/blockscaleConfigVersion.cmake DESTINATION ${package_dir})
