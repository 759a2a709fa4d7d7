/* The least that uses the library: each of the three folders beside it builds this its own way. */
#include <kjit/kjit.h>
#include <stdio.h>

int main(void) {
  kjit_runtime *runtime = NULL;
  kjit_error error;
  if (kjit_runtime_create(&runtime, NULL, &error) != KJIT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  printf("kjit %s\n", kjit_version());
  kjit_runtime_destroy(runtime);
  return 0;
}
