/* kjit-compile-worker: the program that compiles for a runtime with a compile server (kjit/worker.h). People do not run
 * it. */
#include <kjit/worker.h>

int main(int argc, char **argv) {
  return kjit_worker_main(argc, argv);
}
