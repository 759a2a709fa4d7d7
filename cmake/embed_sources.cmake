# Writes the kernel sources as one C file, the table of src/jit/embedded_sources.h.
#
#   cmake -DROOT=kernel_src -DFILES="a.cu;b/c.cuh" -DOUTPUT=embedded_sources.c -P embed_sources.cmake
#
# FILES are relative to ROOT, sorted, and become the names; the same files give the same bytes wherever they lie.
cmake_minimum_required(VERSION 3.22)

set(texts "")
set(table "")
set(count 0)
foreach(name IN LISTS FILES)
  file(SIZE "${ROOT}/${name}" bytes)
  file(READ "${ROOT}/${name}" hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n  " hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," array "${hex}")
  string(APPEND texts "\n/* ${name} */\nstatic const unsigned char text_${count}[] = {\n  ${array}0x00};\n")
  string(APPEND table "    {\"${name}\", text_${count}, ${bytes}},\n")
  math(EXPR count "${count} + 1")
endforeach()

file(WRITE "${OUTPUT}.new" "/* Written by cmake/embed_sources.cmake. */
#include \"jit/embedded_sources.h\"
${texts}
const struct embedded_source embedded_sources[] = {
${table}    {NULL, NULL, 0},
};

const size_t embedded_source_count = ${count};
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
