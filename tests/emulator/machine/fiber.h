// A thread of control with a stack of its own, that runs when it is told to and gives back when it has to wait.
#ifndef KJIT_TESTS_EMULATOR_MACHINE_FIBER_H
#define KJIT_TESTS_EMULATOR_MACHINE_FIBER_H

#include <setjmp.h>
#include <stdbool.h>
#include <ucontext.h>

namespace emulator {

class Fiber {
public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  // What it does when it runs next; whatever it was doing is dropped.
  void start(void (*function)(void *), void *argument);

  // From outside: run until it suspends itself or ends.
  void resume();

  // From inside: back to whoever resumed it.
  void suspend();

private:
  static void enter(unsigned low, unsigned high);

  char *memory_;
  ucontext_t fresh_;
  jmp_buf inside_, outside_;
  bool is_fresh_ = false;
  bool is_idle_ = false; // has ended what it was started for, and waits inside
  void (*function_)(void *) = nullptr;
  void *argument_ = nullptr;
};

} // namespace emulator

#endif
