# How every file is compiled, whatever target it belongs to.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON) # every folder also goes into libtreadle.so
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON) # for clang-tidy and editors

# A switch over operations has no default: the compiler names the file that forgot one.
add_compile_options(-Wall -Wextra -Werror=switch)
# {.queries = 4} leaves the other members to their defaults, on purpose.
add_compile_options(-Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict) # GCC 12 sees overlaps in "x" + std::string that are not there
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wno-deprecated-declarations) # libstdc++'s stable_sort uses what is deprecated; GCC says nothing
endif()
if(TREADLE_WERROR)
  add_compile_options(-Werror)
endif()

# Results are the same bits whatever the compiler: a * b + c is never fused behind our back (GCC would, Clang would not),
# and there is no -ffast-math. Not setting errno changes no result, and lets sqrt be one instruction.
add_compile_options(-ffp-contract=off -fno-math-errno)

if(TREADLE_SANITIZE)
  set(sanitize -fsanitize=${TREADLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${sanitize})
  add_link_options(${sanitize})
  if(TREADLE_FUZZ) # so that fuzzers see which code an input reaches
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()
endif()

# What users get is hardened: checked calls of the C library, stack protectors, and a read-only table of functions. The time
# goes into compiled kernels, which none of this touches.
if(NOT TREADLE_SANITIZE)
  add_compile_options($<$<CONFIG:Release>:-fstack-protector-strong>)
  add_compile_definitions($<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
  add_link_options($<$<CONFIG:Release>:LINKER:-z,relro,-z,now>)
endif()

# Tells builds apart in the cache of kernels on disk, which is not used without. GCC asks for one by itself on most systems,
# Clang and lld on few.
add_link_options(LINKER:--build-id=sha1)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache asks to be told that precompiled headers are meant.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
