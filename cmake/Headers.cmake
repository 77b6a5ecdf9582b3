# Target dsec_headers: compiles every header of src alone, so that each includes what it uses.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/src/*.hpp")
list(FILTER headers EXCLUDE REGEX "^guest/(aether|launcher)/")  # built with flags of their own
set(header_sources)
foreach(header ${headers})
  string(REPLACE "/" "_" name "${header}")
  set(source "${CMAKE_BINARY_DIR}/headers/${name}.cpp")
  if(NOT EXISTS "${source}")
    file(WRITE "${source}" "#include \"${header}\"\n#include \"${header}\"\n")
  endif()
  list(APPEND header_sources "${source}")
endforeach()
add_library(dsec_headers OBJECT EXCLUDE_FROM_ALL ${header_sources})
target_link_libraries(dsec_headers PRIVATE dsec_cli)
