# How every test program is compiled. What is tested is optimised; the tests need not be.
function(treadle_test_options target)
  treadle_includes(${target})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/support ${CMAKE_CURRENT_BINARY_DIR})
  target_compile_options(${target} PRIVATE -O0 -U_FORTIFY_SOURCE) # which needs optimised code
  target_link_libraries(
    ${target} PRIVATE ${TREADLE_FOLDER_LIBRARIES} nlohmann_json::nlohmann_json GTest::gtest_main GTest::gmock
  )
endfunction()
