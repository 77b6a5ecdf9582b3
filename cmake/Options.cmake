# Warnings, sanitizers and build-wide definitions. Every target of ours links dsec_options.
add_library(dsec_options INTERFACE)
target_compile_options(dsec_options INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 at -O3 takes `"text" + std::string` for an overlapping copy (GCC bug 105651), and the value of a
  # tl::expected that was checked for one that is not there.
  target_compile_options(dsec_options INTERFACE "$<$<CONFIG:Release>:-Wno-restrict;-Wno-maybe-uninitialized>")
endif()
target_include_directories(dsec_options INTERFACE "${CMAKE_SOURCE_DIR}/src")
if(DSEC_FAILPOINTS)
  target_compile_definitions(dsec_options INTERFACE DSEC_FAILPOINTS=1)
endif()
if(DSEC_SANITIZE)
  target_compile_options(dsec_options INTERFACE -fsanitize=${DSEC_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  # Instrumented standard headers bring false warnings; warnings are errors where nothing is instrumented.
  target_compile_options(dsec_options INTERFACE -Wno-error)
  target_link_options(dsec_options INTERFACE -fsanitize=${DSEC_SANITIZE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# A static library of ours from all *.cpp in its folder (not below it).
function(dsec_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  endif()
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC dsec_options ${ARG_DEPENDS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE dsec_options ${ARG_DEPENDS})
  endif()
endfunction()
