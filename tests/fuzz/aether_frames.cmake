dsec_fuzz(aether_frames DEPENDS dsec_backends
          PARSER src/backends/container/aether_frames.cpp
          APART encode put_id put_string join_strings encode_exec encode_hello encode_plain encode_id stamp)
