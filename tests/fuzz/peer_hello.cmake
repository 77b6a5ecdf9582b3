dsec_fuzz(peer_hello DEPENDS dsec_proto
          PARSER src/proto/peer.cpp src/proto/frame.cpp
          APART peer_proof append peer_nonce from_packed packed with)
