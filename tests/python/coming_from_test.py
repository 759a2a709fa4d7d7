"""Every "after" of docs/coming-from.md, compiled by the real NVRTC and launched over a driver that only counts.

usage: coming_from_test.py C_COMPILER LIBRARY_FOLDER         (KJIT_LIBCUDA names the driver)

The C blocks are functions run(kjit, x, n, stream, error), called by the program below; the Python blocks define
run(x, n). Each must launch once.
"""

import re
import sys
from pathlib import Path

import harness

COMPILER, LIBRARIES = sys.argv[1:3]
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/coming-from.md").read_text()
C_BLOCKS = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

MAIN = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  void *driver = dlopen(getenv("KJIT_LIBCUDA"), RTLD_NOW);
  int (*launches)(void) = (int (*)(void))dlsym(driver, "asked_launches");
  int (*make_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
  kjit_runtime *kjit = NULL;
  kjit_error error = KJIT_ZERO;
  make_current((void *)1);
  kjit_status status = kjit_runtime_create(&kjit, NULL, &error);
  if (status == KJIT_OK) status = run(kjit, (float *)4096, 1000, NULL, &error);
  if (status != KJIT_OK) fprintf(stderr, "%s\n", error.message);
  printf("%d launches\n", launches());
  kjit_runtime_destroy(kjit);
  return status == KJIT_OK ? 0 : 1;
}
"""
PYTHON_MAIN = r"""
import ctypes, os
from arrays import Array
driver = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])
driver.asked_parameters(0, 8)
run(Array(1000), 1000)
print(driver.asked_launches(), "launches")
"""


class ComingFrom(harness.TemporaryFolder):
    def launches(self, *command, **environment):
        done = self.run_command(*command, environment=environment)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout.strip()

    def test_page__has_an_after_for_each_before(self):
        self.assertEqual(len(C_BLOCKS) + len(PYTHON_BLOCKS), PAGE.count("\nBefore"))
        self.assertEqual(PAGE.count("\nAfter"), PAGE.count("\nBefore"))

    def test_c__every_after_launches_once(self):
        for number, block in enumerate(C_BLOCKS):
            source, program = self.folder / f"after{number}.c", self.folder / f"after{number}"
            source.write_text(block + MAIN)
            self.launches(COMPILER, "-std=c11", "-Wall", "-Werror", f"-I{ROOT / 'include'}", source, "-o", program,
                          f"-L{LIBRARIES}", "-lkjit", f"-Wl,-rpath,{LIBRARIES}", "-ldl")
            self.assertEqual(self.launches(program), "1 launches", f"C block {number}")

    def test_python__every_after_launches_once(self):
        for number, block in enumerate(PYTHON_BLOCKS):
            script = self.folder / f"after{number}.py"
            script.write_text(f"import sys; sys.path.append({str(ROOT / 'tests/python')!r})\n{block}{PYTHON_MAIN}")
            self.assertEqual(self.launches(sys.executable, script), "1 launches", f"Python block {number}")


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
