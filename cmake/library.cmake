# libtreadle.so: all folders in one but those that say OUTSIDE_LIBRARY, showing only what is marked TREADLE_API.

get_property(TREADLE_LIBRARIES GLOBAL PROPERTY TREADLE_LIBRARIES)

add_library(treadle SHARED)
add_library(treadle::treadle ALIAS treadle)
foreach(library IN LISTS TREADLE_LIBRARIES)
  # The objects themselves: from a static library the linker would leave out the public functions, since nothing inside calls
  # them. The libraries come along for what they depend on.
  target_sources(treadle PRIVATE $<TARGET_OBJECTS:${library}>)
  target_link_libraries(treadle PRIVATE ${library})
endforeach()

target_include_directories(
  treadle INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
)
target_compile_features(treadle INTERFACE cxx_std_20)
treadle_library_properties(treadle)
