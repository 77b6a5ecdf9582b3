dsec_fuzz(aether_frames DEPENDS dsec_backends)
