dsec_fuzz(image_config DEPENDS dsec_fs)
