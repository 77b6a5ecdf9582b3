dsec_fuzz(oci_tar DEPENDS dsec_fs dsec_unpack
          PARSER src/fs/unpack/apply_layer.cpp src/fs/unpack/entry_path.cpp src/fs/unpack/findings.cpp
                 src/fs/unpack/layer_stream.cpp src/fs/unpack/tree_writer.cpp
          APART open_blob)
target_include_directories(fuzz_oci_tar PRIVATE "${CMAKE_SOURCE_DIR}/tests")
