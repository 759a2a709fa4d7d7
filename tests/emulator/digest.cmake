# Writes a header with one digest of all files that decide what a kernel becomes.
#
#   cmake -DFILES="a;b" -DOUTPUT=digest.h -P digest.cmake
cmake_minimum_required(VERSION 3.22)
set(all "")
foreach(file IN LISTS FILES)
  file(SHA256 ${file} digest)
  get_filename_component(name ${file} NAME)
  string(APPEND all "${name} ${digest}\n")
endforeach()
string(SHA256 digest "${all}")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define KJIT_EMULATOR_DIGEST \"${digest}\"\n")
