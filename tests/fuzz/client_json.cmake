dsec_fuzz(client_json DEPENDS dsec_proto
          PARSER src/proto/json_read.cpp src/proto/json_write.cpp)
