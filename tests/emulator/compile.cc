// Compiles CUDA C++ for the host: what the stand-in for NVRTC does with a program.
//
// The program's headers are written to a folder and its text is translated (translate.h); the host's compiler makes an
// object, which the image (image.h) carries. machine.h has the whole way in order. Each compile has a folder of its
// own, so that several threads may compile.
#include "compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "image.h"
#include "translate.h"

namespace emulator {
namespace {

namespace fs = std::filesystem;

// A folder that goes with all it holds.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "kjit-emulator-XXXXXX").string();
    if (mkdtemp(pattern.data())) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  const fs::path &path() const { return path_; }

private:
  fs::path path_;
};

std::string read_file(const fs::path &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool write_file(const fs::path &path, const std::string &text) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  std::ofstream file(path, std::ios::binary);
  file << text;
  return file.flush().good();
}

// A header's name must not lead out of the folder.
bool is_inside(const std::string &name) {
  const fs::path path = fs::path(name).lexically_normal();
  return !path.empty() && path.is_relative() && *path.begin() != "..";
}

// Line numbers of a message are the source's, whatever stands in front.
std::string numbered(const Source &source) {
  return "#line 1 \"" + source.name + "\"\n" + source.text;
}

std::string entries_of(const std::vector<Source> &sources) {
  std::string text = "\n";
  for (const Source &source : sources)
    for (const Entry &entry : find_entries(source.text))
      text += "EMULATOR_KERNEL(" + entry.name + ")\nEMULATED_BOUNDS(" + entry.name + ", (" + entry.max_threads +
              "), (" + entry.min_blocks + "))\n";
  return text;
}

// "90" and "a" of "sm_90a", as the macros that the compilers of CUDA set.
std::vector<std::string> arch_macros(const std::string &arch) {
  const size_t digits = arch.find_first_of("0123456789");
  const size_t end = arch.find_first_not_of("0123456789", digits);
  const std::string number = digits == std::string::npos ? "0" : arch.substr(digits, end - digits);
  std::vector<std::string> macros = {"-D__CUDA_ARCH__=" + number + "0"};
  if (end != std::string::npos) macros.push_back("-D__CUDA_ARCH_FEAT_SM" + number + "_ALL");
  return macros;
}

// The kernels that check others: gpu_check_test has them beside the host's arithmetic, and with every access looked at
// they would take most of a test's time.
bool is_trusted(const std::string &name) {
  static const char *const names[] = {"attention_reference.cu", "attention_compare.cu", "census.cu", "fill_normal.cu"};
  return std::any_of(std::begin(names), std::end(names), [&](const char *trusted) { return name == trusted; });
}

// Reads and writes through pointers are told to the machine (device/emulator_checks.h).
void announce_accesses(std::vector<std::string> *words) {
#ifdef __clang__
  const char *const introduction = "-mllvm", *const prefix = "-asan-";
#else
  const char *const introduction = "--param", *const prefix = "asan-";
#endif
  words->push_back("-fsanitize=kernel-address");
  static const char *const settings[] = {"instrumentation-with-call-threshold=0", "stack=0", "globals=0"};
  for (const char *const setting : settings) {
    words->push_back(introduction);
    words->push_back(std::string(prefix) + setting);
  }
}

std::vector<std::string> command_line(const CompileRequest &request, const fs::path &folder) {
  const std::string here = KJIT_EMULATOR_FOLDER;
  std::vector<std::string> words = {KJIT_EMULATOR_CXX,
                                    "-std=c++17",
                                    "-O1",
                                    "-shared",
                                    "-fPIC",
                                    "-w",
                                    "-Wno-psabi",
                                    "-fno-strict-aliasing",
                                    "-ffp-contract=off",
                                    "-Wl,-Bsymbolic",
                                    "-fno-exceptions",
                                    "-fno-rtti",
                                    "-fno-asynchronous-unwind-tables",
                                    "-D__CUDACC__",
                                    "-D__CUDACC_RTC__",
                                    "-I" + here + "/device",
                                    "-I" + here,
                                    "-I" + (folder / "headers").string(),
                                    "-include",
                                    here + "/device/emulator_prelude.h",
                                    "-include",
                                    here + "/translated.h"};
#ifndef __clang__
  words.push_back("-fno-gnu-unique"); // such symbols are shared by all kernels of the process, and keep them loaded
#endif
  if (!is_trusted(request.main.name)) announce_accesses(&words);
  for (const std::string &macro : arch_macros(request.arch))
    words.push_back(macro);
  for (const std::string &word : {(folder / "main.cc").string(), std::string("-o"), (folder / "kernel.so").string()})
    words.push_back(word);
  return words;
}

// Run the command with both outputs in `log`; its exit status, or -1.
int run(const std::vector<std::string> &words, const fs::path &log) {
  std::vector<char *> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string &word : words)
    arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child;
  int status = -1;
  if (posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0) {
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
      continue;
  }
  posix_spawn_file_actions_destroy(&actions);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Mutated where a test asks for it. False with a line in the log when that cannot be done.
bool mutate_all(std::vector<Source> *sources, std::string *log) {
  for (Source &source : *sources) {
    if (mutate(source.name, &source.text)) continue;
    *log = source.name + ": error: what the mutation replaces does not occur in it exactly once\n";
    return false;
  }
  return true;
}

bool write_sources(const std::vector<Source> &sources, const fs::path &folder, std::string *log) {
  const Source main = {sources[0].name, translate(sources[0].text)};
  if (!write_file(folder / "main.cc", numbered(main) + entries_of(sources))) {
    *log = "error: " + folder.string() + " cannot be written\n";
    return false;
  }
  for (size_t i = 1; i < sources.size(); i++) {
    const Source header = {sources[i].name, translate(sources[i].text)};
    if (is_inside(header.name) && write_file(folder / "headers" / header.name, numbered(header))) continue;
    *log = header.name + ": error: this header cannot be written\n";
    return false;
  }
  return true;
}

// What emulator_prelude.h and translated.h export for an entry. False when there is anything else than expected.
bool read_kernel(void *library, const std::string &name, KernelRecord *kernel) {
  const auto *bytes = static_cast<const unsigned *>(dlsym(library, ("emulator_parameters_" + name).c_str()));
  const auto *bounds = static_cast<const unsigned *>(dlsym(library, ("emulated_bounds_" + name).c_str()));
  if (!bytes || !bounds || name.size() >= sizeof kernel->name) return false;
  *kernel = {};
  memcpy(kernel->name, name.c_str(), name.size() + 1);
  kernel->max_threads = bounds[0];
  kernel->min_blocks = bounds[1];
  for (; *bytes; bytes++) {
    if (kernel->parameter_count == kMostParameters) return false;
    kernel->parameter_bytes[kernel->parameter_count++] = *bytes;
  }
  return true;
}

// The object needs nothing of the driver's to be opened. False with a line in the log.
bool read_kernels(const fs::path &object, const std::vector<Source> &sources, std::vector<KernelRecord> *kernels,
                  std::string *log) {
  void *const library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *log += std::string("error: the compiled kernel cannot be opened: ") + dlerror() + "\n";
    return false;
  }
  bool read = true;
  for (const Source &source : sources)
    for (const Entry &entry : find_entries(source.text)) {
      kernels->emplace_back();
      read = read && read_kernel(library, entry.name, &kernels->back());
    }
  dlclose(library);
  if (!read) *log += "error: a kernel has a parameter list or a name that the emulator cannot take\n";
  return read;
}

} // namespace

CompileResult compile(const CompileRequest &request) {
  CompileResult result;
  const TemporaryFolder folder;
  if (folder.path().empty()) {
    result.log = std::string("error: no temporary folder: ") + strerror(errno) + "\n";
    return result;
  }
  std::vector<Source> sources = {request.main};
  sources.insert(sources.end(), request.headers.begin(), request.headers.end());
  if (!mutate_all(&sources, &result.log) || !write_sources(sources, folder.path(), &result.log)) return result;
  const int status = run(command_line(request, folder.path()), folder.path() / "log");
  result.log = read_file(folder.path() / "log");
  if (status != 0) {
    if (result.log.empty()) result.log = std::string("error: ") + KJIT_EMULATOR_CXX + " does not run\n";
    return result;
  }
  Image image = {request.arch, read_file(folder.path() / "kernel.so"), {}};
  if (!read_kernels(folder.path() / "kernel.so", sources, &image.kernels, &result.log)) return result;
  result.image = write_image(image);
  result.compiled = true;
  return result;
}

} // namespace emulator
