dsec_fuzz(oci_json DEPENDS dsec_fs
          PARSER src/fs/oci_json.cpp src/fs/bounded_json.cpp src/fs/unpack/plan.cpp
          APART arguments_of parse_arguments parse_layer number to_json)
