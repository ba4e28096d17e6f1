#include "checkpoint/json_reader.h"

#include <set>
#include <vector>

namespace blockscale {
namespace {

using Json = nlohmann::json;

// What the parser must not be asked to judge: it takes NUL for the end and skips a byte order mark.
Status CheckBytes(std::string_view text, const std::string& file) {
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    return InvalidInput("{}: is not JSON: NUL byte at offset {}", file, nul);
  if (text.starts_with("\xEF\xBB\xBF"))
    return InvalidInput("{}: is not JSON: starts with a byte order mark; remove it", file);
  return OkStatus();
}

// "[json.exception.parse_error.101] parse error at ..." -> "parse error at ..."
std::string WithoutTag(std::string_view what) {
  const size_t end = what.find("] ");
  return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
}

// Accepts any document; refuses names given twice and deep nesting.
class StructureCheck final : public nlohmann::json_sax<Json> {
 public:
  explicit StructureCheck(const std::string& file) : file_(file) {}
  const Status& failure() const { return failure_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Deeper(); }
  bool end_object() override { return Shallower(); }
  bool start_array(size_t) override { return Deeper(); }
  bool end_array() override { return Shallower(); }
  bool key(string_t& name) override {
    if (names_.back().insert(name).second) return true;
    failure_ = InvalidInput("{}: name '{}' stands twice in one object; keep one", file_, name);
    return false;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    failure_ = InvalidInput("{}: is not JSON: {}", file_, WithoutTag(e.what()));
    return false;
  }

 private:
  bool Deeper() {
    names_.emplace_back();
    if (names_.size() <= size_t{kMaxJsonDepth}) return true;
    failure_ = InvalidInput("{}: is nested deeper than {} levels", file_, kMaxJsonDepth);
    return false;
  }
  bool Shallower() {
    names_.pop_back();
    return true;
  }

  const std::string& file_;
  std::vector<std::set<std::string>> names_;
  Status failure_;
};

}  // namespace

Result<nlohmann::ordered_json> ParseJsonStrictly(std::string_view text, const std::string& file) {
  BLOCKSCALE_RETURN_IF_ERROR(CheckBytes(text, file));
  StructureCheck check(file);
  if (!Json::sax_parse(text.begin(), text.end(), &check)) return check.failure();
  nlohmann::ordered_json document = nlohmann::ordered_json::parse(text, nullptr, false);
  if (document.is_discarded()) return InvalidInput("{}: is not JSON", file);
  return document;
}

Status ParseJsonEvents(std::string_view text, const std::string& file,
                       nlohmann::json_sax<Json>& handler, const Status& failure) {
  BLOCKSCALE_RETURN_IF_ERROR(CheckBytes(text, file));
  if (Json::sax_parse(text.begin(), text.end(), &handler)) return OkStatus();
  BLOCKSCALE_CHECK(!failure.ok(), "{}: the handler stopped without a reason", file);
  return failure;
}

}  // namespace blockscale
