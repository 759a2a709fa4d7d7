# Writes the kernel sources as one C file, the table of src/jit/embedded_sources.h.
#
#   cmake -DROOT=kernel_src -DFILES="a.cu;b/c.cuh" [-DB2SUM=b2sum] -DOUTPUT=embedded_sources.c -P embed_sources.cmake
#
# FILES are relative to ROOT, sorted, and become the names; the same files give the same bytes wherever they lie. With
# B2SUM (a program) the texts are left out but for their #include lines, and their digests are written instead.
cmake_minimum_required(VERSION 3.22)

# The text of a file as hex digits, and the C expression of its digest.
function(read_source path hex digest)
  if(NOT B2SUM)
    file(READ "${path}" text HEX)
    set(digest_text NULL)
  else()
    execute_process(COMMAND ${B2SUM} -l 256 "${path}" OUTPUT_VARIABLE sum COMMAND_ERROR_IS_FATAL ANY)
    string(SUBSTRING "${sum}" 0 64 sum)
    set(digest_text "\"${sum}\"")
    file(STRINGS "${path}" lines REGEX "^[ \t]*#[ \t]*include")
    list(JOIN lines "\n" lines)
    string(HEX "${lines}\n" text)
  endif()
  set(${hex} "${text}" PARENT_SCOPE)
  set(${digest} "${digest_text}" PARENT_SCOPE)
endfunction()

set(texts "")
set(table "")
set(count 0)
foreach(name IN LISTS FILES)
  read_source("${ROOT}/${name}" hex digest)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n  " hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," array "${hex}")
  string(APPEND texts "\n/* ${name} */\nstatic const unsigned char text_${count}[] = {\n  ${array}0x00};\n")
  string(APPEND table "    {\"${name}\", text_${count}, ${bytes}, ${digest}},\n")
  math(EXPR count "${count} + 1")
endforeach()

file(WRITE "${OUTPUT}.new" "/* Written by cmake/embed_sources.cmake. */
#include \"jit/embedded_sources.h\"
${texts}
const struct embedded_source embedded_sources[] = {
${table}    {NULL, NULL, 0, NULL},
};

const size_t embedded_source_count = ${count};
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
