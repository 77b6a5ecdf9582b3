dsec_fuzz(config DEPENDS dsec_base)
