dsec_fuzz(oci_tar DEPENDS dsec_fs dsec_unpack)
target_include_directories(fuzz_oci_tar PRIVATE "${CMAKE_SOURCE_DIR}/tests")
