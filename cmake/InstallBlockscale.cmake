# `cmake --install` gives the program, the library, its public headers and a CMake package.
install(TARGETS blockscale_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
