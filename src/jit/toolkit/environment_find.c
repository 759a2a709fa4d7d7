/* Environments of Python and conda. An active one is named by a variable. Of one that is not active, the program is run
 * by its path, as in /opt/venv/bin/python; so the first word of the command line is looked at. The link /proc/self/exe
 * does not help, because it leads out of a virtual environment to the Python that the environment was made from. A
 * process with raised rights looks at neither, since its caller chose both. Nothing is kept; any thread. */
#include "jit/toolkit/environment_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static const struct {
  const char *variable, *mark;
} environments[] = {{"VIRTUAL_ENV", "pyvenv.cfg"}, {"CONDA_PREFIX", "conda-meta"}};

bool environment_of_program(const char *program, const char *mark, char folder[DYNLIB_PATH_BYTES]) {
  char path[DYNLIB_PATH_BYTES];
  const char *slash = *program == '/' ? strrchr(program, '/') : NULL;
  const size_t bin = slash ? (size_t)(slash - program) : 0;
  if (bin < 5 || strncmp(slash - 4, "/bin", 4) != 0) return false;
  const int length = snprintf(path, sizeof path, "%.*s/%s", (int)(bin - 4), program, mark);
  if (length <= 0 || length >= (int)sizeof path || access(path, R_OK) != 0) return false;
  memcpy(folder, program, bin - 4);
  folder[bin - 4] = '\0';
  return true;
}

/* Where a shell found a program that was called without a folder. */
static bool find_in_path(char program[DYNLIB_PATH_BYTES]) {
  char name[256], path[DYNLIB_PATH_BYTES];
  if (snprintf(name, sizeof name, "%s", program) >= (int)sizeof name) return false;
  for (const char *at = getenv("PATH"); at && *at;) {
    const size_t bytes = strcspn(at, ":");
    const int length = snprintf(path, sizeof path, "%.*s/%s", (int)bytes, at, name);
    if (*at == '/' && length < (int)sizeof path && access(path, X_OK) == 0) {
      memcpy(program, path, (size_t)length + 1);
      return true;
    }
    at += bytes + (at[bytes] == ':');
  }
  return false;
}

/* The running program as it was called, with its whole path. */
static bool read_program(char program[DYNLIB_PATH_BYTES]) {
  FILE *const file = fopen("/proc/self/cmdline", "re");
  const size_t bytes = file ? fread(program, 1, DYNLIB_PATH_BYTES - 1, file) : 0;
  if (file) (void)fclose(file);
  program[bytes] = '\0';
  if (!*program || strlen(program) == DYNLIB_PATH_BYTES - 1) return false;
  if (!strchr(program, '/')) return find_in_path(program);
  if (*program == '/') return true;
  char relative[DYNLIB_PATH_BYTES], here[DYNLIB_PATH_BYTES];
  memcpy(relative, program, strlen(program) + 1);
  return getcwd(here, sizeof here) && snprintf(program, DYNLIB_PATH_BYTES, "%s/%s", here, relative) < DYNLIB_PATH_BYTES;
}

static const char *parent_of_own_package(char folder[DYNLIB_PATH_BYTES]) {
  char *slash = dynlib_own_folder(folder) ? strrchr(folder, '/') : NULL;
  if (!slash || slash == folder) return NULL;
  *slash = '\0';
  return folder;
}

const char *environment_folder(const char *variable, char folder[DYNLIB_PATH_BYTES]) {
  if (!strcmp(variable, ENVIRONMENT_SITE_PACKAGES)) return parent_of_own_package(folder);
  const char *value = secure_getenv(variable);
  if (value || getauxval(AT_SECURE)) return value;
  char program[DYNLIB_PATH_BYTES];
  for (size_t i = 0; i < sizeof environments / sizeof *environments; i++)
    if (!strcmp(environments[i].variable, variable) && read_program(program) &&
        environment_of_program(program, environments[i].mark, folder))
      return folder;
  return NULL;
}
