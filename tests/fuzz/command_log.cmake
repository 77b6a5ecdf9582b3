dsec_fuzz(command_log DEPENDS dsec_backends)
