// dsecd completion bash|zsh: a script for the shell that knows every subcommand and option, made of
// the same parser that reads the command line. Pure.
#include <array>
#include <functional>
#include <iostream>
#include <set>

#include "cli/cli.hpp"

namespace dsec::cli {
namespace {

/// A place in the command line, such as "dsecd image import", and what may follow.
struct place {
  std::string at;
  std::set<std::string> subcommands, options;
};

void collect(const CLI::App& app, const std::string& at, std::vector<place>& all) {
  place here{at, {}, {}};
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) here.options.insert("--" + name);
  }
  for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    here.subcommands.insert(sub->get_name());
    collect(*sub, at + " " + sub->get_name(), all);
  }
  all.push_back(std::move(here));
}

std::string joined(const std::set<std::string>& words) {
  std::string all;
  for (const auto& w : words) all += (all.empty() ? "" : " ") + w;
  return all;
}

/// Arms of a `case` over "place word": the places that have places below.
std::string steps(const std::vector<place>& all) {
  std::string arms;
  for (const auto& p : all) {
    for (const auto& sub : p.subcommands)
      arms += (arms.empty() ? "" : "|") + ("'" + p.at + " " + sub + "'");
  }
  return arms;
}

/// Arms of a `case` over the place: its words.
std::string words(const std::vector<place>& all) {
  std::string arms;
  for (const auto& p : all) {
    arms += "    '" + p.at + "') found='" + joined(p.subcommands) +
            (p.subcommands.empty() || p.options.empty() ? "" : " ") + joined(p.options) + "' ;;\n";
  }
  return arms;
}

/// What differs between the shells.
struct shell {
  const char* name;
  const char* begin;    // before the function
  const char* typed;    // the words before the one to complete
  const char* offer;    // gives $found to the shell
  const char* end;      // after the function
  const char* install;  // where a user puts it
};
constexpr std::array shells{
    shell{"bash",
          "# Put into a file that bash reads: dsecd completion bash > "
          "/etc/bash_completion.d/dsecd\n",
          "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"",
          "  COMPREPLY=($(compgen -W \"$found\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n",
          "complete -o default -F _dsecd dsecd\n", "source <(dsecd completion bash)"},
    shell{"zsh",
          "#compdef dsecd\n"
          "# Put into a directory of $fpath: dsecd completion zsh > "
          "/usr/local/share/zsh/site-functions/_dsecd\n",
          "${words[2,CURRENT-1]}", "  compadd -- ${=found}\n  _files\n", "_dsecd \"$@\"\n",
          "dsecd completion zsh > /tmp/_dsecd"},
};

void print(const shell& s, const std::vector<place>& all) {
  std::cout << s.begin
            << "_dsecd() {\n"
               "  local at=dsecd found= word\n"
               "  for word in "
            << s.typed
            << "; do\n"
               "    case \"$at $word\" in "
            << steps(all)
            << ") at=\"$at $word\" ;; esac\n"
               "  done\n"
               "  case \"$at\" in\n"
            << words(all) << "  esac\n"
            << s.offer << "}\n"
            << s.end;
}

}  // namespace

void add_completion(CLI::App& app, context& shared) {
  auto* command = app.add_subcommand("completion", "print a script that completes command lines");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  dsecd completion bash > /etc/bash_completion.d/dsecd\n"
      "  dsecd completion zsh > /usr/local/share/zsh/site-functions/_dsecd\n");
  for (const auto& s : shells) {
    auto* one = command->add_subcommand(s.name, std::string("for ") + s.name);
    one->footer(std::string("Examples:\n  ") + s.install + "\n");
    one->callback([&app, &shared, &s] {
      shared.chosen = [&app, &s] {
        std::vector<place> all;
        collect(app, "dsecd", all);
        print(s, all);
        return 0;
      };
    });
  }
}

}  // namespace dsec::cli
