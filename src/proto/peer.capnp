@0xb1c7a9d2e4f05836;
# The peer protocol: what a worker and a coordinator say to each other over the WebSocket that the worker opens at
# /v1/peer, one binary message each (unpacked, no text). Clients never see it: a schema apart, so that no client can say
# any of it. What clients say and hear travels inside as it is (Data), never re-encoded. The first member of every union is
# `unset`; one that is not known ends the link. Ordinals are only appended. Limits stand in peer.hpp.
#
#   worker                              coordinator
#     hello (who, nonce)            ->
#                                   <-    challenge (nonce, proof) or refused
#     proof                         ->
#                                   <-    welcome or refused
#     report, at once and every second ->
#                                   <-    leases, openChannel, request, closeChannel, findKey
#     reply, taken, channelClosed, foundKey ->

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("dsec::proto");

struct PeerMessage {
  body :union {
    unset @0 :Void;
    hello @1 :PeerHello;
    challenge @2 :PeerChallenge;
    proof @3 :Text;               # of the worker, see peer.hpp
    welcome @4 :Void;
    refused @5 :PeerRefusal;      # then the link is closed
    report @6 :PeerReport;
    leases @7 :List(PeerLease);   # changes; after welcome all that are held
    openChannel @8 :OpenChannel;
    closeChannel @9 :UInt64;      # the client's connection is gone
    channelClosed @10 :UInt64;    # the worker has nobody at its end any more; a request opens another
    request @11 :PeerRequest;
    reply @12 :PeerReply;
    findKey @13 :PeerKey;
    foundKey @14 :PeerKeyState;
    taken @15 :UInt64;            # callId: nothing of the request waits at the worker any more, its command goes on
  }
}

struct PeerHello {
  # The only message that is read from somebody who has proven nothing yet, with `proof`.
  version @0 :UInt32;
  edge @1 :Text;                  # node.name: the first part of its sandboxes' ids
  nodeId @2 :Text;                # of its state directory: a worker that was started again is the same one
  nonce @3 :Text;                 # random, peer.hpp
  program @4 :Text;               # release, for the log
}

struct PeerChallenge {
  nonce @0 :Text;
  proof @1 :Text;                 # of the coordinator: a worker speaks to nobody who does not know the secret
}

struct PeerRefusal {
  code @0 :Text;                  # base/error.hpp
  message @1 :Text;
}

struct PeerReport {
  slots @0 :UInt32;
  slotsUsed @1 :UInt32;
  waiting @2 :UInt32;             # creates that are not admitted
  memoryTotal @3 :UInt64;         # bytes
  memoryAvailable @4 :UInt64;
  memoryReserve @5 :UInt64;
  memoryOvercommit @6 :Float64;
  limitsBytes @7 :UInt64;         # promised to the living
  settlingBytes @8 :UInt64;
  creates @9 :UInt64;             # that came over this link before the rest was counted
  draining @10 :Bool;
  unhealthy @11 :Text;            # why; empty: healthy
  imagesChanged @12 :Bool;        # since the last report: `images` has them all
  images @13 :List(Text);         # "base NAME:TAG"
}

struct PeerLease {
  principal @0 :Text;
  leaseId @1 :Text;
  leaseMs @2 :UInt32;
  held @3 :Bool;                  # by some connection; else the last one has gone
}

struct OpenChannel {
  # A client's connection: its requests go over the channel, and what they ask is asked by it.
  channel @0 :UInt64;
  principal @1 :Text;
  peer @2 :Text;                  # address of the client, for the log
  leaseId @3 :Text;               # that it named; empty = none
  leaseMs @4 :UInt32;
}

struct PeerRequest {
  channel @0 :UInt64;
  callId @1 :UInt64;              # unique on the link; the reply's id
  leftMs @2 :UInt32;              # to the deadline
  traceId @3 :Text;
  admitMs @4 :UInt32;             # a create not admitted within that is refused, for another worker to try; 0 = leftMs
  request @5 :Data;               # client.capnp: Request, as the client sent it
  sayTaken @6 :Bool;              # it is large: `taken` is waited for before more of the kind is sent
}

struct PeerReply {
  callId @0 :UInt64;
  reply @1 :Data;                 # client.capnp: Reply, whose id is callId
}

struct PeerKey {
  callId @0 :UInt64;
  principal @1 :Text;
  key @2 :Text;
}

struct PeerKeyState {
  callId @0 :UInt64;
  used @1 :Bool;                  # a sandbox was made with it, or a create with it waits
  withdrawn @2 :Bool;             # it was withdrawn before its create had come
}
