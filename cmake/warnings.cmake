# kjit_warnings: what every C and C++ file of the project is compiled with. Clean with gcc 12 and clang 14. The asan and
# tsan presets do not make errors of them: what the instrumentation adds confuses gcc's flow analysis.
add_library(kjit_warnings INTERFACE)
target_compile_options(kjit_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wvla
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
  $<$<BOOL:${KJIT_WERROR}>:-Werror>)
