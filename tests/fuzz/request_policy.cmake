dsec_fuzz(request_policy DEPENDS dsec_net
          PARSER src/net/request_policy.cpp
          APART ticket_body)
