# cmake --install: headers, libraries, program, licence, and the package behind find_package(treadle). The Python module is
# not among them: pip installs it. What belongs to libtreadle_mpi is `cmake --install --component mpi`, for who packs it alone.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/treadle)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/treadle TYPE INCLUDE PATTERN mpi.h EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE TYPE DOC)
install(TARGETS treadle EXPORT treadle)
if(TARGET treadle_program)
  install(TARGETS treadle_program)
endif()

# Beside the lists of targets there is little to say, because users of libtreadle need no other library.
install(EXPORT treadle NAMESPACE treadle:: DESTINATION ${package_dir} FILE treadle-targets.cmake)
if(TARGET treadle_mpi)
  install(FILES ${PROJECT_SOURCE_DIR}/include/treadle/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/treadle COMPONENT mpi)
  install(TARGETS treadle_mpi EXPORT treadle_mpi COMPONENT mpi)
  install(
    EXPORT treadle_mpi
    NAMESPACE treadle::
    DESTINATION ${package_dir}
    FILE treadle-mpi-targets.cmake
    COMPONENT mpi
  )
endif()
install(FILES ${CMAKE_CURRENT_LIST_DIR}/treadle-config.cmake DESTINATION ${package_dir})
write_basic_package_version_file(treadle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/treadle-config-version.cmake DESTINATION ${package_dir})
