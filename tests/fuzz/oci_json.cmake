dsec_fuzz(oci_json DEPENDS dsec_fs)
