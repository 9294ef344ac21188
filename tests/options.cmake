# How every test program is compiled. What is tested is optimised; the tests need not be.
#
# Any test may check against any stage, so each gets all of them; from static libraries the linker takes what is used.
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
get_property(TREADLE_FOLDER_LIBRARIES GLOBAL PROPERTY TREADLE_FOLDER_LIBRARIES)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH project_folder)
set(check_names ${project_folder}/tools/check_test_names.py)

# paths.h: in two steps, since a target's file is known only when all is configured.
if(TARGET treadle_program)
  set(program $<TARGET_FILE:treadle_program>)
endif()
set(paths ${CMAKE_CURRENT_BINARY_DIR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/support/paths.h.in paths.h.in)
file(GENERATE OUTPUT paths.h INPUT ${paths}/paths.h.in)

function(treadle_test_options target)
  treadle_includes(${target})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/support ${paths})
  target_compile_options(${target} PRIVATE -O0 -U_FORTIFY_SOURCE) # which needs optimised code
  target_link_libraries(
    ${target} PRIVATE ${TREADLE_FOLDER_LIBRARIES} nlohmann_json::nlohmann_json GTest::gtest_main GTest::gmock
  )
endfunction()
