# cmake --install: headers, library, program, licence, and the package behind find_package(treadle). The Python module is
# not among them: pip installs it.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/treadle)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/treadle TYPE INCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE TYPE DOC)
install(TARGETS treadle EXPORT treadle)
if(TARGET treadle_program)
  install(TARGETS treadle_program)
endif()

# The list of targets is the whole package, because users need no other library.
install(EXPORT treadle NAMESPACE treadle:: DESTINATION ${package_dir} FILE treadle-config.cmake)
write_basic_package_version_file(treadle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/treadle-config-version.cmake DESTINATION ${package_dir})
