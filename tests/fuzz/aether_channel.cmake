dsec_fuzz(aether_channel DEPENDS dsec_options)
