#include "cli/smoke/session.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "backends/sys/file.hpp"
#include "base/embedded.hpp"
#include "base/paths.hpp"
#include "base/write_all.hpp"
#include "fs/import.hpp"

namespace dsec::cli::smoke {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr const char* image = "smoke:1";
constexpr const char* program = "/attack";  // guest/attack
constexpr std::uint32_t memory_mb = 64, wait_ms = 30'000;
constexpr std::chrono::seconds stop_patience{90};

result<void> write_program(const std::filesystem::path& file) {
  DSEC_TRY(const auto made, sys::open_at(AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC, 0755));
  return base::write_all(made.get(), base::embedded_attack(), file.native());
}

result<void> expect(bool right, const std::string& what) {
  if (right) return {};
  return fail(errc::internal, what);
}

/// "holes 0 denied N" is the last line of an attack; N.
result<int> denials(const std::string& attack, const std::string& out, int exit_code) {
  const auto last = out.rfind("holes 0 denied ");
  if (exit_code != 0 || last == std::string::npos) {
    const auto hole = out.find("hole:");
    return fail(errc::internal, "attack '" + attack + "' got through: " +
                                    out.substr(std::min(hole, out.size()), 400));
  }
  return std::stoi(out.substr(last + sizeof "holes 0 denied " - 1));
}

}  // namespace

session::outcome session::outcome_of(proto::Command::Reader c) {
  return {{reinterpret_cast<const char*>(c.getStdout().begin()), c.getStdout().size()},
          c.getExitCode(),
          c.getState() == proto::CommandState::ENDED};
}

result<std::string> session::make_image() {
  if (base::embedded_attack().empty())
    return fail(errc::unsupported, "this dsecd was built without its guest programs");
  const auto tree = directory / "tree";
  for (const auto& each : {tree, tree / "proc", tree / "sys", tree / "dev", tree / "tmp"})
    DSEC_CHECK(sys::make_directory_at(AT_FDCWD, each, 0755));
  DSEC_CHECK(write_program(tree / "attack"));
  DSEC_CHECK(sys::make_directory_at(AT_FDCWD, config.state, 0700));
  DSEC_TRY(const auto made,
           fs::import_image(base::paths(config.state), fs::layer_kind::base, image, tree.string(),
                            {}, [](std::string_view, std::string_view) {}));
  return "imported " + std::to_string(made.size_bytes / 1024) + " KiB";
}

result<void> session::start_daemon() {
  const auto file = directory / "smoke.toml";
  DSEC_TRY(const auto to, sys::open_at(AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  DSEC_CHECK(base::write_all(to.get(), base::dump_config(config), file.native()));
  DSEC_TRY(daemon, own_daemon::start(config, file, directory / "dsecd.log"));
  const base::paths where(config.state);
  DSEC_TRY(auto url, sys::read_file(where.url()));
  DSEC_TRY(auto key, sys::read_file(where.api_key()));
  for (auto* text_line : {&url, &key}) text_line->resize(text_line->find_last_not_of("\n") + 1);
  DSEC_TRY(connection, client::ws_client::connect(url, key));
  return {};
}

result<std::string> session::start() {
  DSEC_CHECK(start_daemon());
  return "serves as process " + std::to_string(daemon->pid());
}

result<client::reply> session::call(const std::function<void(proto::Request::Builder)>& fill) {
  return connection->call(fill);
}

result<std::string> session::create() {
  DSEC_TRY(const auto made, call([](proto::Request::Builder r) {
             auto c = r.getBody().initCreateSandbox();
             c.setImage(image);
             c.setMemoryMb(memory_mb);
           }));
  sandbox = made.body().getSandbox().getSandboxId().cStr();
  return sandbox + " runs";
}

result<session::outcome> session::run(const std::string& id, const std::vector<std::string>& argv,
                                      bool wait) {
  DSEC_TRY(const auto answer, call([&](proto::Request::Builder r) {
             auto e = r.getBody().initExec();
             e.setSandboxId(sandbox.c_str());
             e.setCommandId(id.c_str());
             auto words = e.initArgv(static_cast<unsigned>(argv.size()));
             for (unsigned i = 0; i < argv.size(); ++i) words.set(i, argv[i].c_str());
             e.setWait(wait);
           }));
  return outcome_of(answer.body().getCommand());
}

result<session::outcome> session::wait_for(const std::string& id) {
  DSEC_TRY(const auto answer, call([&](proto::Request::Builder r) {
             auto c = r.getBody().initGetCommand();
             c.setSandboxId(sandbox.c_str());
             c.setCommandId(id.c_str());
             c.setWaitMs(wait_ms);
           }));
  return outcome_of(answer.body().getCommand());
}

result<std::string> session::exec() {
  DSEC_TRY(const auto said, run("first", {program, "say", "hello"}));
  DSEC_CHECK(expect(said.out == "hello\n" && said.exit_code == 0,
                    "the first command said '" + said.out + "'"));
  DSEC_TRY(const auto ended, run("exit", {program, "exit", "7"}));
  DSEC_CHECK(
      expect(ended.exit_code == 7, "exit 7 came back as " + std::to_string(ended.exit_code)));
  const auto missing = run("missing", {"/no/such/program"});
  DSEC_CHECK(expect(!missing && missing.error().code == errc::exec_failed,
                    "a program that does not exist was started"));
  return std::string("output, exit code and a missing program come back as they are");
}

result<std::string> session::isolate() {
  int denied = 0;
  for (const char* attack : {"init", "mounts", "reboot"}) {
    DSEC_TRY(const auto tried, run(std::string("attack-") + attack, {program, attack}));
    DSEC_TRY(const int n, denials(attack, tried.out, tried.exit_code));
    denied += n;
  }
  DSEC_TRY(const auto alive, run("alive", {program, "say", "alive"}));
  DSEC_CHECK(expect(alive.out == "alive\n", "the sandbox did not survive its own attacks"));
  return std::to_string(denied) + " attacks of root inside were denied";
}

result<std::string> session::kill_command() {
  DSEC_CHECK(run("spin", {program, "spin", "60"}, false));
  DSEC_TRY(const auto answer, call([&](proto::Request::Builder r) {
             auto c = r.getBody().initKillCommand();
             c.setSandboxId(sandbox.c_str());
             c.setCommandId("spin");
           }));
  const auto signal = answer.body().getCommand().getSignal();
  DSEC_CHECK(
      expect(signal == SIGKILL, "the killed command ended by signal " + std::to_string(signal)));
  return std::string("a command that spins was killed");
}

result<std::string> session::recover() {
  DSEC_CHECK(run("across", {program, "spin", "2"}, false));
  daemon->kill();
  connection.reset();
  DSEC_CHECK(start_daemon());
  DSEC_TRY(const auto across, wait_for("across"));
  DSEC_CHECK(expect(across.ended && across.exit_code == 0,
                    "the command that ran when dsecd was killed did not end well"));
  // The id is known: what it said the first time comes back.
  DSEC_TRY(const auto again, run("first", {program, "say", "twice"}));
  DSEC_CHECK(expect(again.out == "hello\n", "a command was run twice"));
  DSEC_TRY(const auto more, run("after", {program, "say", "on"}));
  DSEC_CHECK(expect(more.out == "on\n", "the sandbox that was taken over runs no command"));
  return std::string("sandbox and command outlived kill -9 of dsecd, and none ran twice");
}

result<std::string> session::stop() {
  DSEC_TRY(const auto ended, call([&](proto::Request::Builder r) {
             r.getBody().initStopSandbox().setSandboxId(sandbox.c_str());
           }));
  const std::string phase = ended.body().getSandbox().getPhase().cStr();
  DSEC_CHECK(expect(phase == "stopped", "the stopped sandbox is " + phase));
  return sandbox + " is stopped";
}

result<std::string> session::clean_up() {
  connection.reset();
  DSEC_CHECK(daemon->end(SIGUSR1, stop_patience));
  const auto left = left_on_host(config);
  std::string all;
  for (const auto& line : left) all += (all.empty() ? "" : "; ") + line;
  DSEC_CHECK(expect(left.empty(), "left on the host: " + all));
  return std::string("no process, group or mount is left");
}

std::span<const step> all_steps() {
  static constexpr std::array steps{
      step{"image", &session::make_image},  step{"start", &session::start},
      step{"create", &session::create},     step{"exec", &session::exec},
      step{"isolation", &session::isolate}, step{"kill", &session::kill_command},
      step{"recovery", &session::recover},  step{"stop", &session::stop},
      step{"clean-up", &session::clean_up},
  };
  return steps;
}

}  // namespace dsec::cli::smoke
