/* kjit-compile-worker as the Python package carries it: the program of kjit/worker.h, with the library that lies beside
 * it. In a package that library is called libkjit.so, without the version by which programs are linked with it; so it
 * is opened by its path here, and not by the linker. People do not run it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *const library = dlopen("$ORIGIN/libkjit.so", RTLD_NOW | RTLD_LOCAL);
  int (*run)(int, char **) = NULL;
  if (library) *(void **)&run = dlsym(library, "kjit_worker_main");
  if (run) return run(argc, argv);
  (void)fprintf(stderr, "kjit-compile-worker: libkjit.so beside it cannot be used: %s\n", dlerror());
  return 127;
}
