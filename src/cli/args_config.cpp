// --config FILE: a TOML file whose keys are the flags of the subcommand.
//
//   port = 8000                # flags of whatever subcommand reads the file
//   kv-policy = "snapkv"       # '_' and '-' are the same
//   [generate]                 # only for this subcommand
//   temperature = 0
//
// The command line wins over the file. Only args*.cpp include CLI11, and only this file toml++.
#include <toml++/toml.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "cli/args_flags.h"

namespace pagefold {
namespace {

constexpr size_t kMostBytes = 1 << 20;

class TomlConfig final : public CLI::Config {
 public:
  TomlConfig(const CLI::App& app, ConfigPlaces& places) : app_(app), places_(places) {}

  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const std::string file = app_.get_config_ptr()->as<std::string>();
    std::string text(kMostBytes + 1, '\0');
    input.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(input.gcount()));
    if (text.size() > kMostBytes) throw CLI::ConfigError(file + ": larger than 1 MiB");
    toml::table table;
    try {
      table = toml::parse(text);
    } catch (const toml::parse_error& e) {
      throw CLI::ConfigError(
          fmt::format("{}:{}: not TOML: {}", file, e.source().begin.line, e.description()));
    }
    std::vector<CLI::ConfigItem> found;
    const auto parsed = app_.get_subcommands();
    if (parsed.empty()) return found;
    const CLI::App& chosen = *parsed.front();
    // The subcommand's own table first: what is set already stays.
    for (const auto& [key, node] : table) {
      if (!node.is_table()) continue;
      const CLI::App* sub = subcommand(key.str());
      if (sub == nullptr) fail(file, node, key.str(), "is no subcommand");
      for (const auto& [name, value] : *node.as_table()) {
        read(file, *sub, sub == &chosen, name.str(), value, found);
      }
    }
    for (const auto& [key, node] : table) {
      if (!node.is_table()) read(file, chosen, true, key.str(), node, found);
    }
    return found;
  }

 private:
  [[noreturn]] static void fail(const std::string& file, const toml::node& node,
                                std::string_view key, std::string_view what) {
    throw CLI::ConfigError(
        fmt::format("{}:{}: '{}' {}", file, node.source().begin.line, key, what));
  }

  void read(const std::string& file, const CLI::App& sub, bool used, std::string_view key,
            const toml::node& node, std::vector<CLI::ConfigItem>& found) const {
    std::string name(key);
    std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = find(sub, name);
    if (option == nullptr || name == "config" || name == "help") {
      fail(file, node, key, fmt::format("is no flag of '{}'", sub.get_name()));
    }
    CLI::ConfigItem item;
    // --log-level belongs to the program.
    if (find_in(sub, name) != nullptr) item.parents = {sub.get_name()};
    item.name = name;
    item.inputs = words(file, key, node, *option);
    if (!used || given(*option)) return;
    places_.emplace("--" + name, fmt::format("{}:{}", file, node.source().begin.line));
    found.push_back(std::move(item));
  }

  const CLI::App* subcommand(std::string_view name) const {
    for (const CLI::App* sub : app_.get_subcommands([](const CLI::App*) { return true; })) {
      if (sub->get_name() == name) return sub;
    }
    return nullptr;
  }
  static const CLI::Option* find_in(const CLI::App& app, const std::string& name) {
    const CLI::Option* option = app.get_option_no_throw("--" + name);
    return option != nullptr && option->check_lname(name) ? option : nullptr;
  }
  const CLI::Option* find(const CLI::App& sub, const std::string& name) const {
    const CLI::Option* option = find_in(sub, name);
    return option != nullptr ? option : find_in(app_, name);
  }
  // On the command line, or another way to say the same is.
  static bool given(const CLI::Option& option) {
    const auto others = option.get_excludes();
    return option.count() > 0 ||
           std::any_of(others.begin(), others.end(), [](CLI::Option* o) { return o->count() > 0; });
  }

  static std::string word(const std::string& file, std::string_view key, const toml::node& node) {
    if (const auto* v = node.as_string()) return v->get();
    if (const auto* v = node.as_integer()) return std::to_string(v->get());
    if (const auto* v = node.as_floating_point()) return fmt::format("{}", v->get());
    if (const auto* v = node.as_boolean()) return v->get() ? "true" : "false";
    fail(file, node, key, "must be a text, a number, true, false or a list of these");
  }

  // A list is for a flag that may be repeated; any other flag sees it as a JSON list.
  static std::vector<std::string> words(const std::string& file, std::string_view key,
                                        const toml::node& node, const CLI::Option& option) {
    const toml::array* list = node.as_array();
    const bool is_switch = option.get_expected_min() == 0;
    if (is_switch && !node.is_boolean()) fail(file, node, key, "is a switch: true or false");
    if (!is_switch && node.is_boolean()) fail(file, node, key, "takes a value, not true or false");
    if (list == nullptr) return {word(file, key, node)};
    std::vector<std::string> out;
    for (const toml::node& element : *list) out.push_back(word(file, key, element));
    if (option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) return out;
    return {dump_json(Json(out))};
  }

  const CLI::App& app_;
  ConfigPlaces& places_;
};

}  // namespace

void add_config(CLI::App& app, ConfigPlaces& places) {
  app.set_config("--config", "", "TOML file whose keys are flags; the command line wins")
      ->type_name("FILE");
  app.config_formatter(std::make_shared<TomlConfig>(app, places));
  app.allow_config_extras(CLI::config_extras_mode::error);
}

}  // namespace pagefold
