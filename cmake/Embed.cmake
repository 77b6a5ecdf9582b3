# dsec_embed(<library> <symbol> <target>): makes an object library holding the bytes of another target's
# executable between <symbol>_begin and <symbol>_end (declared in base/embedded.hpp).
enable_language(ASM)
function(dsec_embed library symbol target)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/guest")
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${symbol}.S")
  file(GENERATE OUTPUT "${source}" CONTENT
".section .rodata
.balign 16
.globl ${symbol}_begin
.globl ${symbol}_end
${symbol}_begin:
.incbin \"${CMAKE_BINARY_DIR}/guest/${target}\"
${symbol}_end:
.section .note.GNU-stack,\"\",@progbits
")
  set_source_files_properties("${source}" PROPERTIES GENERATED TRUE OBJECT_DEPENDS "${CMAKE_BINARY_DIR}/guest/${target}")
  add_library(${library} STATIC "${source}")
  add_dependencies(${library} ${target})
endfunction()
