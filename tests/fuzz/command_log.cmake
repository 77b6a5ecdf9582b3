dsec_fuzz(command_log DEPENDS dsec_backends
          PARSER src/backends/container/command_records.cpp)
