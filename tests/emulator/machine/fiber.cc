// ucontext makes a stack and enters it; from then on _setjmp() and _longjmp() change stacks without a system call.
#include "machine/fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <mutex>
#include <vector>

namespace emulator {
namespace {

// Operands of the largest tiles, unoptimised, and a page that stops what grows beyond them.
constexpr size_t kStackBytes = 256 << 10, kGuardBytes = 64 << 10;

// Stacks that were used before: making one costs system calls, and a launch needs hundreds.
class StackPool {
public:
  char *take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return make();
    char *const stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give_back(char *stack) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(stack);
  }
  ~StackPool() {
    for (char *const stack : free_)
      munmap(stack, kGuardBytes + kStackBytes);
  }

private:
  static char *make() {
    void *const memory =
        mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
      perror("emulator: no memory for a fiber's stack");
      abort();
    }
    return static_cast<char *>(memory);
  }

  std::mutex mutex_;
  std::vector<char *> free_;
};

StackPool pool;

} // namespace

Fiber::Fiber() : memory_(pool.take()) {}

Fiber::~Fiber() {
  pool.give_back(memory_);
}

void Fiber::start(void (*function)(void *), void *argument) {
  function_ = function;
  argument_ = argument;
  is_fresh_ = !is_idle_;
}

// makecontext() hands over int arguments only. What has ended is started again without it.
void Fiber::enter(unsigned low, unsigned high) {
  Fiber *const self = reinterpret_cast<Fiber *>(static_cast<uintptr_t>(high) << 32 | low);
  for (;;) {
    self->is_idle_ = false;
    self->function_(self->argument_);
    self->is_idle_ = true;
    self->suspend();
  }
}

void Fiber::resume() {
  if (_setjmp(outside_) != 0) return;
  if (!is_fresh_) _longjmp(inside_, 1);
  is_fresh_ = false;
  getcontext(&fresh_);
  fresh_.uc_stack.ss_sp = memory_ + kGuardBytes;
  fresh_.uc_stack.ss_size = kStackBytes;
  fresh_.uc_link = nullptr;
  const uintptr_t self = reinterpret_cast<uintptr_t>(this);
  makecontext(&fresh_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self),
              static_cast<unsigned>(self >> 32));
  setcontext(&fresh_);
}

void Fiber::suspend() {
  if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
}

} // namespace emulator
