#include "node_fixture.hpp"

#include <caf/scoped_actor.hpp>
#include <stdexcept>
#include <utility>

#include "actors/recovery.hpp"
#include "actors/terminator.hpp"
#include "proto/client.capnp.h"

namespace dsec::test {

using namespace std::chrono_literals;

base::result<std::vector<actors::sandbox_record>> memory_records::load() {
  const std::scoped_lock lock(mutex_);
  std::vector<actors::sandbox_record> all;
  for (const auto& [id, r] : rows_) all.push_back(r);
  return all;
}

base::result<void> memory_records::apply(const std::vector<actors::record_change>& changes) {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [this] { return !held_; });
  if (failing_) return base::fail(base::errc::io, "disk full");
  for (const auto& change : changes) {
    if (const auto* r = std::get_if<actors::record_ptr>(&change)) {
      rows_.insert_or_assign((*r)->id, **r);
    } else {
      rows_.erase(std::get<actors::erased>(change).id);
    }
  }
  return {};
}

struct memory_records::session final : actors::record_store {
  session(std::shared_ptr<memory_records> o, std::shared_ptr<std::atomic<bool>> c)
      : of(std::move(o)), cut(std::move(c)) {}
  base::result<std::vector<actors::sandbox_record>> load() override { return of->load(); }
  base::result<void> apply(const std::vector<actors::record_change>& changes) override {
    if (*cut) return {};
    return of->apply(changes);
  }
  std::shared_ptr<memory_records> of;
  std::shared_ptr<std::atomic<bool>> cut;
};

std::unique_ptr<actors::record_store> memory_records::open() {
  auto cut = std::make_shared<std::atomic<bool>>(false);
  current_ = cut;
  return std::make_unique<session>(shared_from_this(), std::move(cut));
}

void memory_records::cut_off() {
  if (const auto cut = current_.lock()) *cut = true;
}

std::optional<actors::sandbox_record> memory_records::find(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  const auto it = rows_.find(id);
  return it == rows_.end() ? std::nullopt : std::optional(it->second);
}

void memory_records::fail_from_now(bool on) {
  const std::scoped_lock lock(mutex_);
  failing_ = on;
}

void memory_records::hold(bool on) {
  {
    const std::scoped_lock lock(mutex_);
    held_ = on;
  }
  released_.notify_all();
}

base::result<actors::resolved_images> fixed_images::resolve(const actors::image_refs& refs) {
  if (none) return base::fail(base::errc::not_found, "no image '" + refs.base + "'");
  const std::map<std::string, std::string> known{
      {"debian:12", "aa"}, {"code:1", "bb"}, {"pytest:8", "cc"}};
  actors::resolved_images out;
  auto all = refs.toolkits;
  if (!refs.workspace.empty()) all.insert(all.begin(), refs.workspace);
  all.insert(all.begin(), refs.base);
  for (const auto& name : all) {
    const auto it = known.find(name);
    if (it == known.end()) return base::fail(base::errc::not_found, "no image '" + name + "'");
    out.layers.push_back({it->second, "/blobs/" + it->second});
  }
  out.config.env = {{"PATH", "/image/bin"}, {"LANG", "C.UTF-8"}};
  out.config.cwd = "/work";
  return out;
}

base::result<std::vector<fs::image>> fixed_images::list() {
  if (none) return std::vector<fs::image>();
  fs::image image;
  image.name = "debian";
  image.tag = "12";
  image.digest = "aa";
  return std::vector<fs::image>{image};
}

namespace {

std::string str(capnp::Text::Reader t) {
  return {t.begin(), t.size()};
}
std::string str(capnp::Data::Reader d) {
  return {reinterpret_cast<const char*>(d.begin()), d.size()};
}

void decode_command(proto::Command::Reader c, answer& a) {
  a.kind = "command";
  a.sandbox_id = str(c.getSandboxId());
  a.command_id = str(c.getCommandId());
  const char* names[] = {"unknown", "running", "ended", "lost"};
  a.state = names[static_cast<int>(c.getState())];
  a.exit_code = c.getExitCode();
  a.timed_out = c.getTimedOut();
  a.out = str(c.getStdout());
  a.err = str(c.getStderr());
  a.out_total = c.getStdoutTotal();
  a.out_truncated = c.getStdoutTruncated();
  for (const auto argument : c.getArgv()) a.argv.push_back(str(argument));
}

void decode_sandbox(proto::Sandbox::Reader s, answer& a) {
  a.kind = "sandbox";
  a.sandbox_id = str(s.getSandboxId());
  a.phase = str(s.getPhase());
  a.cause = str(s.getCause());
  a.detail = str(s.getCauseDetail());
  a.commands_running = s.getCommandsRunning();
  a.detached = s.getDetached();
  for (const auto w : s.getWarnings()) a.warnings.push_back(str(w));
}

void decode_error(proto::Error::Reader e, answer& a) {
  a.kind = "error";
  a.code = str(e.getCode());
  a.message = str(e.getMessage());
  a.object = str(e.getObject());
  a.retryable = e.getRetryable();
}

void decode_rest(proto::Reply::Body::Reader body, answer& a) {
  switch (body.which()) {
    case proto::Reply::Body::HELLO:
      a.kind = "hello";
      break;
    case proto::Reply::Body::PONG:
      a.kind = "pong";
      break;
    case proto::Reply::Body::OUTPUT:
      a.kind = "output";
      a.out = str(body.getOutput().getData());
      a.offset = body.getOutput().getOffset();
      a.total = body.getOutput().getTotal();
      a.ended = body.getOutput().getEnded();
      break;
    case proto::Reply::Body::FILE_DATA:
      a.kind = "file_data";
      a.out = str(body.getFileData().getData());
      a.offset = body.getFileData().getOffset();
      a.size = body.getFileData().getSize();
      a.end_of_file = body.getFileData().getEndOfFile();
      break;
    case proto::Reply::Body::FILE_WRITTEN:
      a.kind = "file_written";
      a.size = body.getFileWritten().getSize();
      break;
    case proto::Reply::Body::STREAM:
      a.kind = "stream";
      a.offset = body.getStream().getOffset();
      break;
    default:
      a.kind = "?";
  }
}

}  // namespace

answer decode(const proto::frame& f) {
  answer a;
  const auto ok = proto::view<proto::Reply>(f).read([&](proto::Reply::Reader reply) {
    const auto body = reply.getBody();
    for (const auto e : reply.getUnreachable()) a.unreachable.push_back(str(e));
    switch (body.which()) {
      case proto::Reply::Body::ERROR:
        return decode_error(body.getError(), a);
      case proto::Reply::Body::SANDBOX:
        return decode_sandbox(body.getSandbox(), a);
      case proto::Reply::Body::COMMAND:
        return decode_command(body.getCommand(), a);
      case proto::Reply::Body::SANDBOXES:
        a.kind = "sandboxes";
        for (const auto s : body.getSandboxes()) a.ids.push_back(str(s.getSandboxId()));
        return;
      case proto::Reply::Body::COMMANDS:
        a.kind = "commands";
        for (const auto c : body.getCommands()) a.ids.push_back(str(c.getCommandId()));
        return;
      case proto::Reply::Body::IMAGES:
        a.kind = "images";
        for (const auto i : body.getImages()) {
          a.ids.push_back(str(i.getName()) + ":" + str(i.getTag()));
          for (const auto e : i.getEdges()) a.edges.push_back(str(e));
        }
        return;
      default:
        return decode_rest(body, a);
    }
  });
  if (!ok) throw std::logic_error(ok.error().to_string());
  return a;
}

client::client(door& node, std::string principal,
               const std::function<void(proto::Hello::Builder)>& hello_with)
    : node_(node), principal_(std::move(principal)) {
  reconnect(hello_with);
}

client::~client() {
  disconnect();
}

void client::reconnect(const std::function<void(proto::Hello::Builder)>& more) {
  if (handler_.closed) disconnect();
  session = std::make_shared<recording_session>();
  handler_ = actors::open_connection(node_.actor_system(), node_.connections(), session,
                                     {principal_, "127.0.0.1:1", "k-" + principal_});
  node_.clients.push_back(this);
  node_.run();
  hello(more);
}

void client::hello(const std::function<void(proto::Hello::Builder)>& more) {
  ask([&](proto::Request::Builder r) {
    auto h = r.getBody().initHello();
    h.setProtocolVersion(1);
    if (more) more(h);
  });
}

void client::raw(proto::frame f) {
  handler_.message(std::move(f));
  node_.run();
}

void client::read_replies(std::size_t queued) {
  session->queued = queued;
  handler_.room();
  node_.run();
}

void client::disconnect() {
  std::erase(node_.clients, this);
  if (!handler_.closed) return;
  std::exchange(handler_, {}).closed();
  node_.run();
}

std::uint64_t client::ask(const fill& f, std::uint32_t deadline_ms, const std::string& key) {
  const auto id = send(f, deadline_ms, key);
  node_.run();
  return id;
}

std::uint64_t client::send(const fill& f, std::uint32_t deadline_ms, const std::string& key) {
  capnp::MallocMessageBuilder message;
  auto request = message.initRoot<proto::Request>();
  const auto id = ++last_id_;
  request.setId(id);
  request.setDeadlineMs(deadline_ms);
  request.setIdempotencyKey(key.c_str());
  f(request);
  handler_.message(proto::frame::from_builder(message));
  return id;
}

std::optional<answer> client::got(std::uint64_t id) const {
  for (const auto& f : session->sent) {
    std::uint64_t of = 0;
    static_cast<void>(
        proto::view<proto::Reply>(f).read([&](proto::Reply::Reader r) { of = r.getId(); }));
    if (of == id) return decode(f);
  }
  return std::nullopt;
}

answer client::call(const fill& f, std::uint32_t deadline_ms, const std::string& key) {
  const auto a = got(ask(f, deadline_ms, key));
  if (!a) throw std::logic_error("the request was not answered");
  return *a;
}

node_fixture::node_fixture(fake::script s, std::vector<actors::sandbox_record> known,
                           std::string edge, links l)
    : links_(std::move(l)) {
  config.node.name = std::move(edge);
  config.state = "/nonexistent/dsec-test";
  s.held_time_out = false;
  backend = std::make_shared<fake::backend>(std::move(s));
  std::vector<actors::record_change> rows;
  for (auto& r : known) rows.emplace_back(std::make_shared<const actors::sandbox_record>(r));
  static_cast<void>(records->apply(rows));
  start_again();
}

actors::connection_setup node_fixture::connections() {
  return {slot->get(),
          config.node.name,
          worker->leases,
          120s,
          std::chrono::seconds(config.gateway.lease_seconds),
          worker->metrics};
}

void node_fixture::start_again() {
  if (auto ok = try_start_again(); !ok) throw std::logic_error(ok.error().to_string());
}

base::result<void> node_fixture::try_start_again() {
  runtime = std::make_unique<actors::runtime_config>();
  runtime->set("scheduler.policy", caf::atom("testing"));
  system = std::make_unique<caf::actor_system>(*runtime);
  if (!backend) throw std::logic_error("the node has stopped");
  backend = std::make_shared<fake::backend>(backend->host());
  worker = std::make_shared<actors::worker>();
  worker->config = config;
  worker->live->take(config);
  worker->backend = backend;
  worker->start_pool = start;
  worker->kill_pool = kill;
  worker->copy_pool = copy;
  worker->background_pool = background;
  worker->health = std::make_shared<actors::health_board>();
  worker->writer = std::make_shared<actors::record_writer>(records->open(),
                                                           actors::store_reporter(worker->health));
  worker->images = images;
  const auto began = scheduler().clock().now();
  worker->wall = [this, began, then = wall_] { return then + (scheduler().clock().now() - began); };
  worker->leases =
      std::make_shared<actors::lease_table>([this] { return scheduler().clock().now(); });
  worker->epoch = "epoch" + std::to_string(++epochs_);
  worker->memory = [this]() -> base::result<actors::memory_reading> { return memory; };
  worker->keep_failed = [this](const actors::sandbox_record& r, dsec::backends::instance&) {
    kept.push_back(r);
    on_keep();
  };
  auto known = records->load();
  auto taken = actors::recover_sandboxes(std::move(*known), *worker);
  if (!taken) {
    end_actors();
    return base::fail(taken.error());
  }
  table = *std::move(taken);
  root =
      system->spawn(actors::root_supervisor,
                    actors::root_args{worker, table, slot,
                                      [this](const std::string& why) { given_up.push_back(why); },
                                      links_ ? links_(*this) : std::vector<actors::uplink_args>()});
  run();
  if (!links_) worker->leases->open();
  return {};
}

node_fixture::~node_fixture() {
  if (system) end_actors();
}

/// Ends what is only memory: actors, and jobs that did not run.
void node_fixture::end_actors() {
  for (auto* c : std::exchange(clients, {})) c->drop();
  for (auto* pool : {start.get(), kill.get(), copy.get(), background.get()}) {
    pool->held = pool->full = false;
    pool->jobs.clear();
  }
  wall_ = worker->wall();
  if (root) caf::anon_send_exit(root, caf::exit_reason::user_shutdown);
  while (scheduler().run() > 0) {
  }
  root = nullptr;
  slot->set({});
  for (auto* pool : {start.get(), kill.get(), copy.get(), background.get()}) pool->jobs.clear();
  system.reset();
  // It wrote what was due, unless it was cut off.
  records->hold(false);
  worker.reset();
  table.reset();
  runtime.reset();
}

void node_fixture::kill9() {
  backend->die();
  records->cut_off();
  end_actors();
}

void node_fixture::leave() {
  backend->leave();
  worker->health->set_draining();
  {
    caf::scoped_actor self{*system, true};
    const auto terminator = system->spawn(actors::terminator, root);
    auto done = self->request(terminator, caf::infinite, actors::shut_down{.leave = true});
    run();
    for (auto* c : std::vector<client*>(clients)) c->disconnect();  // as the socket side does
    run();
    if (!self->has_next_message()) throw std::logic_error("the node does not leave");
    done.receive([](actors::shut_down_done) {}, [](caf::error&) {});
    caf::anon_send_exit(terminator, caf::exit_reason::user_shutdown);
  }
  end_actors();
}

void node_fixture::write_records() {
  if (auto ok = worker->writer->wait(worker->writer->erase("nothing")); !ok)
    throw std::logic_error(ok.error().to_string());
}

bool node_fixture::step() {
  bool moved = scheduler().run() > 0;
  for (auto* pool : {start.get(), kill.get(), copy.get(), background.get()}) {
    if (!pool->held) moved = pool->run_one() || moved;
  }
  return moved;
}

void node_fixture::run() {
  while (step()) {
  }
}

void node_fixture::advance(std::chrono::milliseconds total, std::chrono::milliseconds step) {
  for (auto left = total; left > 0ms; left -= std::min(left, step)) {
    scheduler().advance_time(std::min(left, step));
    run();
  }
}

std::string node_fixture::running_sandbox(client& c, const client::fill& more) {
  const auto a = c.call(more ? more : create());
  if (a.kind != "sandbox" || a.phase != "running")
    throw std::logic_error("create failed: " + a.message);
  return a.sandbox_id;
}

actors::sandbox_actor node_fixture::actor_of(const std::string& id, const std::string& principal) {
  caf::scoped_actor self{*system, true};
  const auto from = std::make_shared<const actors::caller>(actors::caller{principal, ""});
  auto handle = self->request(slot->get(), caf::infinite, actors::find_sandbox{from, id});
  run();
  actors::sandbox_actor who;
  handle.receive(
      [&](const actors::found_sandbox& f) { who = caf::actor_cast<actors::sandbox_actor>(f.who); },
      [](caf::error&) {});
  return who;
}

client::fill create(std::function<void(proto::CreateSandbox::Builder)> more) {
  return [more](proto::Request::Builder r) {
    auto c = r.getBody().initCreateSandbox();
    c.setImage("debian:12");
    if (more) more(c);
  };
}

client::fill exec(const std::string& sandbox_id, const std::string& command_id,
                  std::function<void(proto::Exec::Builder)> more) {
  return [=](proto::Request::Builder r) {
    auto e = r.getBody().initExec();
    e.setSandboxId(sandbox_id.c_str());
    e.setCommandId(command_id.c_str());
    e.setWait(true);
    e.initArgv(1).set(0, "true");
    if (more) more(e);
  };
}

client::fill get(const std::string& sandbox_id) {
  return [=](proto::Request::Builder r) {
    r.getBody().initGetSandbox().setSandboxId(sandbox_id.c_str());
  };
}

client::fill stop(const std::string& sandbox_id) {
  return [=](proto::Request::Builder r) {
    r.getBody().initStopSandbox().setSandboxId(sandbox_id.c_str());
  };
}

client::fill get_command(const std::string& sandbox_id, const std::string& command_id,
                         std::uint32_t wait_ms) {
  return [=](proto::Request::Builder r) {
    auto c = r.getBody().initGetCommand();
    c.setSandboxId(sandbox_id.c_str());
    c.setCommandId(command_id.c_str());
    c.setWaitMs(wait_ms);
  };
}

client::fill kill_command(const std::string& sandbox_id, const std::string& command_id) {
  return [=](proto::Request::Builder r) {
    auto c = r.getBody().initKillCommand();
    c.setSandboxId(sandbox_id.c_str());
    c.setCommandId(command_id.c_str());
  };
}

client::fill list() {
  return [](proto::Request::Builder r) { r.getBody().setListSandboxes(); };
}

client::fill list_commands(const std::string& sandbox_id) {
  return [=](proto::Request::Builder r) {
    r.getBody().initListCommands().setSandboxId(sandbox_id.c_str());
  };
}

client::fill set_detached(const std::string& sandbox_id, bool detached) {
  return [=](proto::Request::Builder r) {
    auto d = r.getBody().initSetDetached();
    d.setSandboxId(sandbox_id.c_str());
    d.setDetached(detached);
  };
}

client::fill write_file(const std::string& sandbox_id, const std::string& path,
                        const std::string& data, const std::string& operation) {
  return [=](proto::Request::Builder r) {
    auto w = r.getBody().initWriteFile();
    w.setSandboxId(sandbox_id.c_str());
    w.setPath(path.c_str());
    w.setData({reinterpret_cast<const kj::byte*>(data.data()), data.size()});
    w.setOperationId(operation.c_str());
  };
}

client::fill read_file(const std::string& sandbox_id, const std::string& path) {
  return [=](proto::Request::Builder r) {
    auto f = r.getBody().initReadFile();
    f.setSandboxId(sandbox_id.c_str());
    f.setPath(path.c_str());
  };
}

client::fill read_output(const std::string& sandbox_id, const std::string& command_id) {
  return [=](proto::Request::Builder r) {
    auto o = r.getBody().initReadOutput();
    o.setSandboxId(sandbox_id.c_str());
    o.setCommandId(command_id.c_str());
    o.setLength(8U << 20U);
  };
}

fake::script holding() {
  return {.run =
              [](const backends::exec_spec& spec) {
                fake::fate f;
                f.held = spec.argv.front() == "hold";
                return f;
              },
          .on_step = {}};
}

}  // namespace dsec::test
