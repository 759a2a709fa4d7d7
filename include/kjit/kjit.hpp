/**
 * @file
 * kjit for C++17 and later: the C API with ownership, typed launches and exceptions. Everything here is inline over the
 * functions of <kjit/kjit.h>; the library has no C++ ABI, so any compiler and standard library may be mixed with it.
 *
 * Errors: each function that can fail has two forms. One throws kjit::error; the other takes a `kjit_error &` last,
 * never throws, and returns something that converts to false after a failure. Under -fno-exceptions only the second
 * form is there.
 *
 * Ownership: runtime and plan-like objects are moved, not copied; artifact, module and kernel are copied by taking
 * another reference. An object must not outlive the runtime that it came from, as in C.
 *
 * Thread safety is that of the C functions: a runtime, a module and a kernel may be used by many threads at once; a
 * request belongs to one thread while it is being filled.
 *
 * @code
 * kjit::runtime runtime;
 * kjit::kernel scale = runtime.get_kernel(
 *     kjit::request("scale.cu", text).entry("scale<float>").define("THREADS", 256).name("scale<float>"));
 * scale.launch({{blocks}, {256}}, stream, data, count, 2.0f);
 * @endcode
 */
#ifndef KJIT_KJIT_HPP
#define KJIT_KJIT_HPP

#include <kjit/kjit.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__cpp_lib_span) || (__cplusplus >= 202002L && __has_include(<span>))
#include <span>
#define KJIT_HPP_SPAN 1
#endif
#if defined(__cpp_exceptions)
#include <stdexcept>
#define KJIT_HPP_EXCEPTIONS 1
#endif

namespace kjit {

#ifdef KJIT_HPP_EXCEPTIONS
/** What a failed call throws: the C error, whose message is what(). */
class error : public std::runtime_error {
public:
  explicit error(const kjit_error &what) : std::runtime_error(what.message), what_(what) {}
  /** Which rule was broken, as the C function returns it. */
  kjit_status status() const noexcept { return static_cast<kjit_status>(what_.status); }
  /** Everything that the C function said, the driver's or compiler's own code among it. */
  const kjit_error &details() const noexcept { return what_; }

private:
  kjit_error what_;
};

namespace detail {
/** Call f(kjit_error &) and throw what it says when its result converts to false. */
template <class F> auto or_throw(F &&f) {
  kjit_error what = KJIT_ZERO;
  auto result = f(what);
  if (!result) throw error(what);
  return result;
}
} // namespace detail
#endif

/** A grid, a block or a cluster: blocks or threads in x, y and z. What is left out is 1. */
struct extent {
  uint32_t x = 1, y = 1, z = 1;
};

/** One launch: grid, block and dynamic shared memory; `options` has all else that kjit_launch has. */
struct launch {
  extent grid, block;
  uint32_t dynamic_shared_bytes = 0;
  kjit_launch options = kjit_launch_default();

  kjit_launch to_c() const {
    kjit_launch c = options;
    const extent shapes[] = {grid, block};
    uint32_t *const to[] = {c.grid, c.block};
    for (int i = 0; i < 2; i++) {
      to[i][0] = shapes[i].x;
      to[i][1] = shapes[i].y;
      to[i][2] = shapes[i].z;
    }
    c.dynamic_shared_bytes = dynamic_shared_bytes;
    return c;
  }
};

namespace detail {
/** A reference-counted C object: copying takes a reference, destroying gives it back. */
template <class T, T *(*Retain)(T *), void (*Release)(T *)> class shared {
public:
  shared() = default;
  explicit shared(T *taken) noexcept : object_(taken) {}
  shared(const shared &other) : object_(other.object_ ? Retain(other.object_) : nullptr) {}
  shared(shared &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  shared &operator=(shared other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~shared() { Release(object_); }

  /** The C object, still owned by this one; null when there is none. */
  T *get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

private:
  T *object_ = nullptr;
};

struct end_runtime {
  void operator()(kjit_runtime *runtime) const noexcept { kjit_runtime_destroy(runtime); }
};
} // namespace detail

/** A compiled kernel or module in host memory. */
class artifact : public detail::shared<kjit_artifact, kjit_artifact_retain, kjit_artifact_release> {
public:
  using shared::shared;

  /** What is known of it; its pointers are borrowed from the artifact. All zero for an empty object. */
  kjit_artifact_info info() const noexcept {
    kjit_artifact_info info = KJIT_ZERO;
    info.struct_size = sizeof info;
    if (kjit_artifact_get_info(get(), &info, nullptr) != KJIT_OK) info = KJIT_ZERO;
    return info;
  }
  /** 64 hex digits. */
  std::string key() const { return text(info().key); }
  /** What the compiler said, "" for nothing. */
  std::string log() const { return text(info().log); }
  /** The machine code, borrowed. */
  std::string_view cubin() const noexcept {
    const kjit_artifact_info known = info();
    return {static_cast<const char *>(known.cubin), known.cubin_bytes};
  }

private:
  static std::string text(const char *text) { return text ? text : ""; }
};

/** A loaded kernel. */
class kernel : public detail::shared<kjit_kernel, kjit_kernel_retain, kjit_kernel_release> {
public:
  using shared::shared;

  /**
   * Launch with the kernel's parameters in order, each of exactly the type that the kernel declares: the sizes are
   * checked against the cubin, and an error names the parameter. Asynchronous, on `stream`, in the current context.
   */
  template <class... Args>
  bool launch(const kjit::launch &how, CUstream stream, kjit_error &what, const Args &...args) const noexcept {
    static_assert((std::is_trivially_copyable_v<Args> && ...), "a kernel takes what can be copied byte by byte");
    const std::array<kjit_arg, sizeof...(Args) + 1> list = {kjit_arg{&args, sizeof args}..., kjit_arg{nullptr, 0}};
    const kjit_launch c = how.to_c();
    return kjit_kernel_launch(get(), &c, list.data(), sizeof...(Args), stream, &what) == KJIT_OK;
  }

  /** How the launch fills the current context's device; blocks is 0 after a failure. */
  kjit_occupancy occupancy(const kjit::launch &how, kjit_error &what) const noexcept {
    kjit_occupancy found = KJIT_ZERO;
    found.struct_size = sizeof found;
    const kjit_launch c = how.to_c();
    if (kjit_kernel_get_occupancy(get(), &c, &found, &what) != KJIT_OK) found = KJIT_ZERO;
    return found;
  }

#ifdef KJIT_HPP_EXCEPTIONS
  template <class First, class... Args,
            class = std::enable_if_t<!std::is_same_v<std::remove_const_t<First>, kjit_error>>>
  void launch(const kjit::launch &how, CUstream stream, const First &first, const Args &...args) const {
    detail::or_throw([&](kjit_error &what) { return launch(how, stream, what, first, args...); });
  }
  void launch(const kjit::launch &how, CUstream stream) const {
    detail::or_throw([&](kjit_error &what) { return launch(how, stream, what); });
  }
#endif
};

/** A loaded module: its kernels by name or name expression, and its global variables. */
class module : public detail::shared<kjit_module, kjit_module_retain, kjit_module_release> {
public:
  using shared::shared;

  kernel get_kernel(const char *name, kjit_error &what) const noexcept {
    kjit_kernel *found = nullptr;
    return kjit_module_get_kernel(get(), name, &found, &what) == KJIT_OK ? kernel(found) : kernel();
  }
  /** Copy one value to a variable, in the order of the stream. */
  template <class T>
  bool write_global(const char *name, const T &value, CUstream stream, kjit_error &what) const noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "a variable takes what can be copied byte by byte");
    return kjit_module_write_global(get(), name, 0, &value, sizeof value, stream, &what) == KJIT_OK;
  }
  /** Copy a variable's first sizeof(T) bytes from the device; waits for the stream. */
  template <class T> bool read_global(const char *name, T &value, CUstream stream, kjit_error &what) const noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "a variable is copied byte by byte");
    return kjit_module_read_global(get(), name, 0, &value, sizeof value, stream, &what) == KJIT_OK;
  }
#ifdef KJIT_HPP_SPAN
  template <class T>
  bool write_global(const char *name, std::span<const T> values, CUstream stream, kjit_error &what) const noexcept {
    return kjit_module_write_global(get(), name, 0, values.data(), values.size_bytes(), stream, &what) == KJIT_OK;
  }
  template <class T>
  bool read_global(const char *name, std::span<T> values, CUstream stream, kjit_error &what) const noexcept {
    return kjit_module_read_global(get(), name, 0, values.data(), values.size_bytes(), stream, &what) == KJIT_OK;
  }
#endif
#ifdef KJIT_HPP_EXCEPTIONS
  kernel get_kernel(const char *name) const {
    return detail::or_throw([&](kjit_error &what) { return get_kernel(name, what); });
  }
  template <class T> void write_global(const char *name, const T &value, CUstream stream) const {
    detail::or_throw([&](kjit_error &what) { return write_global(name, value, stream, what); });
  }
  template <class T> T read_global(const char *name, CUstream stream) const {
    T value{};
    detail::or_throw([&](kjit_error &what) { return read_global(name, value, stream, what); });
    return value;
  }
#endif
};

/**
 * What to build. Owns copies of all texts that it is given; each function returns the request, so that calls can be
 * chained. May be used for any number of builds.
 */
class request {
public:
  /** `name` is what messages call the source. */
  request(std::string_view name, std::string_view text) : name_(keep(name)), text_(keep(text)) {}
  request(const request &) = delete; /* its pointers are into itself */
  request &operator=(const request &) = delete;
  request(request &&) = default; /* a deque's elements stay where they are when it is moved */
  request &operator=(request &&) = default;

  request &&entry(std::string_view name) && { return std::move(set(c_.entry, name)); }
  request &&arch(std::string_view name) && { return std::move(set(c_.arch, name)); }
  request &&define(std::string_view name, std::string_view value = "1") && {
    defines_.push_back({keep(name), keep(value)});
    return std::move(*this);
  }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  request &&define(std::string_view name, T value) && {
    return std::move(*this).define(name, std::string_view(std::to_string(value)));
  }
  request &&header(std::string_view name, std::string_view text) && {
    headers_.push_back({keep(name), keep(text), text.size()});
    return std::move(*this);
  }
  request &&include_dir(std::string_view folder) && { return append(include_dirs_, folder); }
  request &&option(std::string_view option) && { return append(options_, option); }
  /** A further kernel or variable that the module must have, as a name expression. */
  request &&name(std::string_view expression) && { return append(names_, expression); }
  /** KJIT_BUILD_*. */
  request &&flags(uint32_t flags) && {
    c_.flags |= flags;
    return std::move(*this);
  }
  request &&timeout_ms(uint32_t milliseconds) && {
    c_.timeout_ms = milliseconds;
    return std::move(*this);
  }

  /** The C request; borrowed from this object, valid until it is changed. */
  kjit_build_request to_c() const noexcept {
    kjit_build_request c = c_;
    c.source = {name_, text_, std::strlen(text_)};
    c.headers = headers_.data();
    c.header_count = headers_.size();
    c.include_dirs = include_dirs_.data();
    c.include_dir_count = include_dirs_.size();
    c.defines = defines_.data();
    c.define_count = defines_.size();
    c.options = options_.data();
    c.option_count = options_.size();
    c.names = names_.data();
    c.name_count = names_.size();
    return c;
  }

private:
  const char *keep(std::string_view text) { return texts_.emplace_back(text).c_str(); }
  request &set(const char *&member, std::string_view text) {
    member = keep(text);
    return *this;
  }
  request &&append(std::vector<const char *> &list, std::string_view text) {
    list.push_back(keep(text));
    return std::move(*this);
  }

  std::deque<std::string> texts_;
  const char *name_, *text_;
  std::vector<kjit_define> defines_;
  std::vector<kjit_source> headers_;
  std::vector<const char *> include_dirs_, options_, names_;
  kjit_build_request c_ = kjit_build_request_default();
};

/** The runtime: caches, compiler, driver and loaded kernels. One for a process is usual. */
class runtime {
public:
  /** An empty object after a failure. */
  static runtime create(const kjit_runtime_options &options, kjit_error &what) noexcept {
    kjit_runtime *made = nullptr;
    return kjit_runtime_create(&made, &options, &what) == KJIT_OK ? runtime(made) : runtime(nullptr);
  }
  kjit_runtime *get() const noexcept { return object_.get(); }
  explicit operator bool() const noexcept { return object_ != nullptr; }

  artifact build(const request &wanted, kjit_error &what) const noexcept {
    kjit_artifact *made = nullptr;
    const kjit_build_request c = wanted.to_c();
    if (kjit_build(get(), &c, &made, &what) == KJIT_OK) return artifact(made);
    kjit_artifact_release(made); /* of a failed compile: its log is in the error's message, cut */
    return artifact();
  }
  kernel get_kernel(const request &wanted, kjit_error &what) const noexcept {
    kjit_kernel *made = nullptr;
    const kjit_build_request c = wanted.to_c();
    return kjit_kernel_get(get(), &c, &made, &what) == KJIT_OK ? kernel(made) : kernel();
  }
  module get_module(const request &wanted, kjit_error &what) const noexcept {
    kjit_module *made = nullptr;
    const kjit_build_request c = wanted.to_c();
    return kjit_module_get(get(), &c, &made, &what) == KJIT_OK ? module(made) : module();
  }

#ifdef KJIT_HPP_EXCEPTIONS
  explicit runtime(const kjit_runtime_options &options = kjit_runtime_options_default())
      : object_(detail::or_throw([&](kjit_error &what) { return create(options, what); }).object_.release()) {}
  artifact build(const request &wanted) const {
    return detail::or_throw([&](kjit_error &what) { return build(wanted, what); });
  }
  kernel get_kernel(const request &wanted) const {
    return detail::or_throw([&](kjit_error &what) { return get_kernel(wanted, what); });
  }
  module get_module(const request &wanted) const {
    return detail::or_throw([&](kjit_error &what) { return get_module(wanted, what); });
  }
#endif

private:
  explicit runtime(kjit_runtime *taken) noexcept : object_(taken) {}
  std::unique_ptr<kjit_runtime, detail::end_runtime> object_;
};

} // namespace kjit

#endif
