@0xc3f85d3723784097;
# The client protocol: what libdsec and dsecd say to each other over one WebSocket, one message each: binary
# (Cap'n Proto, packed if hello says so) or the same as JSON text (json.hpp); docs/protocol.md. Ordinals are only ever appended. The first member of every union is
# `unset` and is refused: an unknown member decodes as the first one. Deadlines are relative milliseconds.
# Limits stand in limits.hpp.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("dsec::proto");

struct Request {
  # Client to server. Every request gets exactly one Reply with the same id.
  id @0 :UInt64;                # chosen by the client, unique among its requests in flight; never 0
  traceId @1 :Text;             # joins log lines: of a sandbox (that of its create) and, at level debug, of requests; made by the server when empty
  deadlineMs @2 :UInt32;        # how long the client will wait; 0 = the server's default
  idempotencyKey @3 :Text;      # createSandbox: same key, same sandbox, or sandbox_failed once that has ended; empty = none. stopSandbox: of its create; it is free then

  body :union {
    unset @4 :Void;
    hello @5 :Hello;                    # must be the first request of a connection
    ping @6 :Void;                      # answered with pong; a no-op through gateway and actors
    createSandbox @7 :CreateSandbox;    # -> sandbox, once it is running
    getSandbox @8 :SandboxRef;          # -> sandbox
    listSandboxes @9 :Void;             # -> sandboxes (the caller's)
    stopSandbox @10 :SandboxRef;        # -> sandbox, once it is stopped; idempotent. Without a sandboxId: what the create with the key has made, or else would make
    exec @11 :Exec;                     # -> command, once it ended (wait) or was started
    getCommand @12 :CommandRef;         # -> command, at once or (waitMs) when it ended
    killCommand @13 :CommandRef;        # -> command; kills its whole group
    readOutput @14 :ReadOutput;         # -> output: a piece of a command's stdout or stderr
    readFile @15 :ReadFile;             # -> fileData
    writeFile @16 :WriteFile;           # -> fileWritten
    listImages @17 :Void;               # -> images
    listCommands @18 :SandboxRef;       # -> commands
    setDetached @19 :SetDetached;       # -> sandbox
    openStream @20 :OpenStream;         # -> stream, at once; then streamData. These three need the feature "streams"
    streamCredit @21 :StreamCredit;     # -> stream
    closeStream @22 :StreamRef;         # -> stream, and no streamData after it
    listEvents @23 :ListEvents;         # -> events: what has happened, from memory; at once or (waitMs) when there is something
    getUsage @24 :SandboxRef;           # -> usage; does not count as use of the sandbox
    listNodes @25 :Void;                # -> nodes: this one; of a coordinator its workers
  }
}

struct Reply {
  id @0 :UInt64;                # of the request; 0: answers none (streamData; error, when what came was no request)

  body :union {
    unset @1 :Void;
    error @2 :Error;
    hello @3 :HelloReply;
    pong @4 :Void;
    sandbox @5 :Sandbox;
    sandboxes @6 :List(Sandbox);
    command @7 :Command;
    output @8 :Output;
    fileData @9 :FileData;
    fileWritten @10 :FileWritten;
    images @11 :List(Image);
    commands @12 :List(Command);
    stream @14 :Stream;
    streamData @15 :StreamData;         # only over connections that have opened a stream
    events @17 :Events;
    usage @18 :Usage;
    nodes @19 :List(Node);
  }
  truncated @13 :Bool;          # sandboxes, commands: not all fit; missing are the sandboxes that were created first, ended ones before living ones, the oldest commands
  unreachable @16 :List(Text);  # sandboxes, images, events, nodes: workers that did not answer; what they have is missing
}

struct Error {
  code @0 :Text;                # base/error.hpp, e.g. "capacity"; stable
  message @1 :Text;             # lower-case sentence naming object and remedy
  object @2 :Text;              # id or name of what it is about, may be empty
  retryable @3 :Bool;
}

enum Packing {
  none @0;
  packed @1;                    # Cap'n Proto's packed encoding (of the whole message, segment table included)
}

struct Hello {
  protocolVersion @0 :UInt32;   # the newest that the client speaks
  client @1 :Text;              # "libdsec/0.1.0", in the log line of the connection
  leaseId @2 :Text;             # chosen by the client (as commandId), the same on all its connections: what it creates lives as long as it does; empty = none
  leaseMs @3 :UInt32;           # so long after the last connection with this lease its sandboxes end (ttl), 1,000 to 86,400,000; 0 = the server's default
  oldestVersion @4 :UInt32;     # the oldest that it speaks; 0 = only protocolVersion
  packing @5 :Packing;          # of all binary messages after hello and its reply, both ways
  features @6 :List(Text);      # that it wants to use; those that the server does not have count for nothing
}

struct HelloReply {
  protocolVersion @0 :UInt32;   # the one both sides now speak: the newest common one
  server @1 :Text;
  edge @2 :Text;
  maxMessageBytes @3 :UInt32;
  packing @4 :Packing;          # as asked for
  features @5 :List(Text);      # that the server has
  maxInFlight @6 :UInt32;       # requests of a connection; further ones are not read
  maxStreams @7 :UInt32;        # open on a connection
}

struct NetworkRule {
  # A named service ("pypi", "npm", "apt") switched on or off.
  service @0 :Text;
  allow @1 :Bool;
}

struct EnvVar {
  name @0 :Text;
  value @1 :Text;
}

enum OnFailure {
  none @0;                      # dropped with the sandbox
  snapshot @1;                  # kept as an image before the sandbox is cleared away; not available yet: a warning
}

struct CreateSandbox {
  backend @0 :Text;             # "container" (also when empty)
  image @1 :Text;               # base layer, NAME:TAG
  workspace @2 :Text;           # workspace layer or empty
  toolkits @3 :List(Text);      # bottom to top
  cpuMillis @4 :UInt32;         # 1000 = one CPU; 0 = the server's default
  memoryMb @5 :UInt32;          # MiB; 0 = the server's default
  pidsLimit @6 :UInt32;         # tasks; 0 = the server's default
  idleTtlSeconds @7 :UInt32;    # stopped after so long without a request (ttl_running_stop); 0 = never
  absoluteTtlSeconds @8 :UInt32;  # stopped so long after creation; 0 = never
  env @9 :List(EnvVar);         # on top of the image's
  initUser @10 :Text;           # user of commands; empty = the image's, else root
  workdir @11 :Text;            # empty = the image's, else /
  networkRules @12 :List(NetworkRule);
  hostname @13 :Text;           # empty = the sandbox id
  labels @14 :List(EnvVar);
  detached @15 :Bool;           # not bound to the lease of the connection it is created over
  onFailure @16 :OnFailure;     # what becomes of its writable layer when it fails by itself
}

struct SandboxRef { sandboxId @0 :Text; }

struct SetDetached {
  sandboxId @0 :Text;
  detached @1 :Bool;            # true: its lease does not matter any more; false: bound to the lease of this connection
}

struct Sandbox {
  sandboxId @0 :Text;
  phase @1 :Text;               # base/phase.hpp
  cause @2 :Text;               # of death; "none" while alive
  backend @3 :Text;
  image @4 :Text;
  workspace @5 :Text;
  toolkits @6 :List(Text);
  createdUnixMs @7 :UInt64;
  endedUnixMs @8 :UInt64;       # 0 while alive
  warnings @9 :List(Text);      # what was accepted but has no effect yet
  causeDetail @10 :Text;        # one sentence, may be empty
  cpuMillis @11 :UInt32;
  memoryMb @12 :UInt32;
  commandsRunning @13 :UInt32;
  labels @14 :List(EnvVar);
  detached @15 :Bool;           # bound to no lease
}

struct Exec {
  sandboxId @0 :Text;
  commandId @1 :Text;           # chosen by the client ([A-Za-z0-9._-], 1..64); a known id is never started again
  argv @2 :List(Text);          # exactly one of argv and shell, but see useEntrypoint
  shell @3 :Text;               # run by the image's /bin/bash -c, else /bin/sh -c
  env @4 :List(EnvVar);         # on top of the sandbox's
  cwd @5 :Text;                 # empty = the sandbox's
  user @6 :Text;                # empty = the sandbox's; NAME, UID, NAME:GROUP or UID:GID
  stdin @7 :Data;               # what the command reads; then end of file
  timeoutMs @8 :UInt64;         # killed after so long; 0 = no limit
  outputLimit @9 :UInt64;       # bytes kept per stream (first and last half); 0 = the server's default
  wait @10 :Bool;               # true: answer when it ended; false: when it was started
  inlineLimit @11 :UInt32;      # at most so many bytes per stream come in the reply; 0 = 1 MiB
  useEntrypoint @12 :Bool;      # argv follows the image's Entrypoint; empty: the image's Cmd does. Not with shell
}

struct CommandRef {
  sandboxId @0 :Text;
  commandId @1 :Text;
  waitMs @2 :UInt32;            # getCommand: wait up to so long for its end
  inlineLimit @3 :UInt32;       # as in Exec
}

enum CommandState {
  unknown @0;
  running @1;
  ended @2;
  lost @3;                      # its sandbox ended first; asked to wait for it, the answer is sandbox_failed
}

struct Command {
  sandboxId @0 :Text;
  commandId @1 :Text;
  state @2 :CommandState;
  exitCode @3 :Int32;           # 0..255; 128 + signal when killed by one; valid when ended
  signal @4 :UInt32;            # that killed it, else 0
  timedOut @5 :Bool;
  oomKilled @6 :Bool;
  stdout @7 :Data;              # inline, see inlineLimit
  stderr @8 :Data;
  stdoutTotal @9 :UInt64;       # bytes written by the command
  stderrTotal @10 :UInt64;
  stdoutTruncated @11 :Bool;    # bytes were dropped (from the middle)
  stderrTruncated @12 :Bool;
  startedUnixMs @13 :UInt64;
  durationUs @14 :UInt64;       # valid when ended
  argv @15 :List(Text);
}

struct ReadOutput {
  sandboxId @0 :Text;
  commandId @1 :Text;
  stderr @2 :Bool;              # false: stdout
  offset @3 :UInt64;            # in the command's output, counted from 0
  length @4 :UInt32;            # at most; bounded by the message limit
  waitMs @5 :UInt32;            # wait up to so long until there is something at offset, or the command has ended; then at
                                # most 128 KiB come
}

struct Output {
  data @0 :Data;
  offset @1 :UInt64;            # of data; greater than asked for when bytes in between were dropped
  total @2 :UInt64;             # written so far
  ended @3 :Bool;               # the command ended: nothing comes after total
  lost @4 :Bool;                # with ended: its sandbox ended before it, and total is what of its output there is
}

struct OpenStream {
  # What there is at a source from an offset on, sent without being asked for piece by piece.
  streamId @0 :UInt64;          # chosen by the client, unique among its open streams of this connection
  credit @1 :UInt64;            # bytes of data that may be sent until there is more; without credit nothing is read
  source :union {
    unset @2 :Void;
    output @3 :OutputSource;
    file @4 :FileSource;
  }
}

struct OutputSource {
  # A command's stdout or stderr, followed until the command has ended.
  sandboxId @0 :Text;
  commandId @1 :Text;
  stderr @2 :Bool;              # false: stdout
  offset @3 :UInt64;
}

struct FileSource {
  # A file, to its end.
  sandboxId @0 :Text;
  path @1 :Text;                # absolute
  offset @2 :UInt64;
  user @3 :Text;                # as in Exec
}

struct StreamRef { streamId @0 :UInt64; }

struct StreamCredit {
  streamId @0 :UInt64;
  bytes @1 :UInt64;             # so many more
}

struct Stream {
  streamId @0 :UInt64;
  offset @1 :UInt64;            # of the next byte that is to be sent
  credit @2 :UInt64;            # left
}

enum StreamEnd {
  none @0;                      # it goes on
  complete @1;                  # all that its source has was sent
  failed @2;                    # see error; it may be opened again at where it had come to
}

struct StreamData {
  streamId @0 :UInt64;
  offset @1 :UInt64;            # of data; greater than where the last one ended when bytes in between were dropped
  data @2 :Data;
  end @3 :StreamEnd;            # anything but none: the stream is closed, its id is free
  total @4 :UInt64;             # with complete: bytes of the source. Where data did not come to that, the disk has not taken the rest
  error @5 :Error;              # with failed
}

struct ReadFile {
  sandboxId @0 :Text;
  path @1 :Text;                # absolute
  offset @2 :UInt64;
  length @3 :UInt32;            # at most; 0 = as much as fits in a message
  user @4 :Text;                # as in Exec
}

struct FileData {
  data @0 :Data;
  offset @1 :UInt64;
  size @2 :UInt64;              # of the file
  endOfFile @3 :Bool;
}

struct WriteFile {
  sandboxId @0 :Text;
  path @1 :Text;                # absolute; missing parent directories are made
  data @2 :Data;
  offset @3 :UInt64;            # 0 truncates the file first; else written there
  mode @4 :UInt32;              # permission bits of a new file; 0 = 0644
  user @5 :Text;                # owner of a new file, and whose permissions count
  operationId @6 :Text;         # chosen by the client (as commandId, at most 48): a known one is not done again but answered as it was; empty = none
}

struct FileWritten {
  size @0 :UInt64;              # of the file afterwards
}

struct Image {
  name @0 :Text;
  tag @1 :Text;
  kind @2 :Text;                # base, workspace, toolkit
  digest @3 :Text;              # sha256:…
  sizeBytes @4 :UInt64;
  createdUnixMs @5 :UInt64;
  edges @6 :List(Text);         # workers that have it, when a coordinator says so
}

struct ListEvents {
  # The caller's sandboxes, and what concerns the whole node.
  after @0 :Text;               # `cursor` of the reply before: only what came later; empty = all there is
  traceId @1 :Text;             # only those with it; empty = any
  sandboxId @2 :Text;           # only those of it; empty = any
  limit @3 :UInt32;             # at most so many, the oldest; 0 = as many as fit. A reply has no more than about 48 KiB of them
  waitMs @4 :UInt32;            # when there is none: wait up to so long for one
}

struct Event {
  edge @0 :Text;                # where it happened
  seq @1 :UInt64;               # grows by one with each event there since its dsecd started, whoever may see it
  unixMs @2 :UInt64;
  kind @3 :Text;                # docs/events.md lists them: "sandbox.running" …
  sandboxId @4 :Text;           # empty: of the node
  commandId @5 :Text;
  traceId @6 :Text;             # of the request that it comes from
  detail @7 :Text;              # one sentence or a name, may be empty
  cause @8 :Text;               # sandbox.stopped, sandbox.failed: why; command.failed: the error code
  exitCode @9 :Int32;           # command.ended
}

struct Events {
  events @0 :List(Event);       # of one edge in their order, of several by time
  cursor @1 :Text;              # the next `after`; what stands in it is the server's business
  dropped @2 :UInt64;           # events since `after` that memory has lost, whoever might have seen them
}

struct Usage {
  memoryBytes @0 :UInt64;       # charged to the commands
  cpuUsec @1 :UInt64;           # of CPU time, since it was created
  tasks @2 :UInt32;             # processes and threads
}

struct Node {
  edge @0 :Text;
  sandboxes @1 :UInt32;         # alive, everybody's
  creates @2 :UInt32;           # that wait for admission
  slotsReady @3 :UInt32;
  memoryTotalBytes @4 :UInt64;  # as admission sees it: the host's, or what dsecd's own group leaves
  memoryAvailableBytes @5 :UInt64;
  memoryAdmittedBytes @6 :UInt64;  # limits of living sandboxes, together
  unhealthy @7 :List(Text);     # why /healthz is not 200
}
