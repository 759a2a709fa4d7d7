// Rewrites the parts of CUDA C++ that the host's compiler does not take (translate.h): inline PTX becomes a call,
// dynamic shared memory a pointer, a kernel an exported function. A scanner that knows strings, comments and brackets
// finds them; nothing is parsed.
#include "translate.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <regex>

namespace emulator {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

size_t skip_blanks(const std::string &text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])))
    at++;
  return at;
}

// Behind the literal or comment that begins at `at`; `at` itself when none does.
size_t skip_passive(const std::string &text, size_t at) {
  const char c = text[at];
  if (text.compare(at, 2, "//") == 0) return std::min(text.find('\n', at), text.size());
  if (text.compare(at, 2, "/*") == 0) {
    const size_t end = text.find("*/", at + 2);
    return end == std::string::npos ? text.size() : end + 2;
  }
  // 1'000: no literal begins inside a number.
  if (c != '"' && (c != '\'' || (at && is_word(text[at - 1])))) return at;
  for (size_t i = at + 1; i < text.size(); i++) {
    if (text[i] == '\\') {
      i++;
    } else if (text[i] == c) {
      return i + 1;
    }
  }
  return text.size();
}

// The text with comments and literals blanked: what is found in it stands at the same place in the source.
std::string blank(const std::string &source) {
  std::string text = source;
  for (size_t at = 0; at < source.size();) {
    const size_t end = skip_passive(source, at);
    for (size_t i = at; i < end; i++)
      if (text[i] != '\n') text[i] = ' ';
    at = end == at ? at + 1 : end;
  }
  return text;
}

// Behind the bracket that closes the one at `at`; npos when none does.
size_t skip_brackets(const std::string &text, size_t at) {
  int depth = 0;
  for (; at < text.size(); at++) {
    if (text[at] == '(' || text[at] == '[' || text[at] == '{') depth++;
    if ((text[at] == ')' || text[at] == ']' || text[at] == '}') && --depth == 0) return at + 1;
  }
  return std::string::npos;
}

size_t find_word(const std::string &text, const std::string &word, size_t at) {
  for (; (at = text.find(word, at)) != std::string::npos; at += word.size()) {
    const bool begins = at == 0 || !is_word(text[at - 1]);
    if (begins && (at + word.size() >= text.size() || !is_word(text[at + word.size()]))) return at;
  }
  return at;
}

std::string word_at(const std::string &text, size_t at) {
  size_t end = at;
  while (end < text.size() && is_word(text[end]))
    end++;
  return text.substr(at, end - at);
}

// The call for the asm statement whose brackets are text[open] and text[close - 1].
std::string assembly_call(const std::string &source, const std::string &text, size_t open, size_t close) {
  std::string operands;
  size_t part = 0, ptx_end = close - 1;
  for (size_t at = open + 1; at < close - 1 && part < 3; at++) {
    if (text[at] == ':') {
      if (part++ == 0) ptx_end = at;
    } else if (text[at] == '(' && part > 0) {
      const size_t end = skip_brackets(text, at);
      operands += (operands.empty() ? "" : ", ") + source.substr(at, end - at);
      at = end - 1;
    }
  }
  return "emulated_asm<emulated_asm_id(" + source.substr(open + 1, ptx_end - open - 1) + ")>(" + operands + ")";
}

std::string translate_assembly(const std::string &source) {
  const std::string text = blank(source);
  std::string result;
  size_t copied = 0;
  for (size_t at = 0; (at = find_word(text, "asm", at)) != std::string::npos;) {
    size_t open = skip_blanks(text, at + 3);
    if (word_at(text, open) == "volatile") open = skip_blanks(text, open + 8);
    const size_t close = open < text.size() && text[open] == '(' ? skip_brackets(text, open) : std::string::npos;
    if (close == std::string::npos) {
      at += 3;
      continue;
    }
    const std::string call = assembly_call(source, text, open, close);
    const auto lines = [](const std::string &part) { return std::count(part.begin(), part.end(), '\n'); };
    const auto lost = lines(source.substr(at, close - at)) - lines(call);
    result += source.substr(copied, at - copied) + call + std::string(static_cast<size_t>(lost), '\n');
    copied = at = close;
  }
  return result + source.substr(copied);
}

std::string translate_dynamic_shared(const std::string &source) {
  static const std::regex declaration(
      R"(extern\s+__shared__\s+(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?([\w:][\w: ]*?)\s*\b(\w+)\s*\[\s*\]\s*;)");
  return std::regex_replace(source, declaration, "$1 *const $2 = ($1 *)emulated_dynamic_shared();");
}

// The texts between the brackets at `open`, parted at the commas outside of further ones.
std::vector<std::string> arguments_at(const std::string &source, const std::string &text, size_t open) {
  std::vector<std::string> found;
  size_t from = open + 1, at = from;
  while (at < text.size()) {
    if (text[at] == ',' || text[at] == ')') found.push_back(source.substr(from, at - from));
    if (text[at] == ')') break;
    if (text[at] == ',') from = at + 1;
    at = text[at] == '(' ? skip_brackets(text, at) : at + 1;
  }
  return found;
}

// The entry whose __global__ ends at `at`; without a name when this is no function.
Entry read_entry(const std::string &source, const std::string &text, size_t at) {
  Entry entry = {"", "0", "0"};
  for (;;) {
    at = skip_blanks(text, at);
    const std::string word = word_at(text, at);
    if (word.empty()) return {};
    at = skip_blanks(text, at + word.size());
    if (at >= text.size()) return {};
    if (text[at] != '(') continue;
    if (word.compare(0, 2, "__") != 0) {
      entry.name = word;
      return entry;
    }
    if (word == "__launch_bounds__") {
      const std::vector<std::string> bounds = arguments_at(source, text, at);
      if (!bounds.empty()) entry.max_threads = bounds[0];
      if (bounds.size() > 1) entry.min_blocks = bounds[1];
    }
    at = skip_brackets(text, at);
    if (at == std::string::npos) return {};
  }
}

bool is_extern_c(const std::string &source, size_t at) {
  static const std::regex before("extern\\s+\"C\"\\s*$");
  const size_t from = at > 64 ? at - 64 : 0;
  return std::regex_search(source.substr(from, at - from), before);
}

std::string unescape(const std::string &text) {
  std::string result;
  for (size_t i = 0; i < text.size(); i++) {
    const bool line_end = text.compare(i, 2, "\\n") == 0;
    result += line_end ? '\n' : text[i];
    i += line_end;
  }
  return result;
}

} // namespace

std::string translate(const std::string &source) {
  return translate_dynamic_shared(translate_assembly(source));
}

std::vector<Entry> find_entries(const std::string &source) {
  const std::string text = blank(source), mark = "__global__";
  std::vector<Entry> entries;
  for (size_t at = 0; (at = find_word(text, mark, at)) != std::string::npos; at += mark.size()) {
    const Entry entry = is_extern_c(source, at) ? read_entry(source, text, at + mark.size()) : Entry{};
    if (!entry.name.empty()) entries.push_back(entry);
  }
  return entries;
}

bool mutate(const std::string &file, std::string *source) {
  const char *const given = std::getenv("KJIT_EMULATOR_MUTATION");
  const std::string mutation = given ? given : "";
  const size_t first = mutation.find('\n'), second = mutation.find('\n', first + 1);
  if (first == std::string::npos || second == std::string::npos || mutation.substr(0, first) != file) return true;
  const std::string old_text = unescape(mutation.substr(first + 1, second - first - 1));
  const size_t at = source->find(old_text);
  if (old_text.empty() || at == std::string::npos || source->find(old_text, at + 1) != std::string::npos) return false;
  source->replace(at, old_text.size(), unescape(mutation.substr(second + 1)));
  return true;
}

} // namespace emulator
