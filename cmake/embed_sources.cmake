# Writes the kernel sources as one C file, the table of src/jit/source/embedded_sources.h.
#
#   cmake -DROOT=kernel_src -DFILES="a.cu;b/c.cuh" [-DB2SUM=b2sum]
#         [-DPREFIX=embedded -DHEADER=jit/source/embedded_sources.h] -DOUTPUT=embedded_sources.c -P embed_sources.cmake
#
# FILES are relative to ROOT, sorted, and become the names; the same files give the same bytes wherever they lie. With
# B2SUM (a program) the texts are left out but for their #include lines, and their digests are written instead. Other
# texts are embedded by a PREFIX of what the file defines, declared in HEADER.
cmake_minimum_required(VERSION 3.22)

# The text of a file, and the C expression of its digest.
function(read_source path text digest)
  if(NOT B2SUM)
    file(READ "${path}" read)
    set(digest_text NULL)
  else()
    execute_process(COMMAND ${B2SUM} -l 256 "${path}" OUTPUT_VARIABLE sum COMMAND_ERROR_IS_FATAL ANY)
    string(SUBSTRING "${sum}" 0 64 sum)
    set(digest_text "\"${sum}\"")
    file(STRINGS "${path}" lines REGEX "^[ \t]*#[ \t]*include")
    list(JOIN lines "\n" read)
    string(APPEND read "\n")
  endif()
  set(${text} "${read}" PARENT_SCOPE)
  set(${digest} "${digest_text}" PARENT_SCOPE)
endfunction()

if(NOT PREFIX)
  set(PREFIX embedded)
  set(HEADER jit/source/embedded_sources.h)
endif()
set(table "")
set(count 0)
set(offset 0)
file(WRITE "${OUTPUT}.texts" "")
foreach(name IN LISTS FILES)
  read_source("${ROOT}/${name}" text digest)
  string(LENGTH "${text}" bytes)
  file(APPEND "${OUTPUT}.texts" "${text}\n") # the newline is where the library puts a NUL
  string(APPEND table "    {\"${name}\", ${offset}, ${bytes}, ${digest}},\n")
  math(EXPR count "${count} + 1")
  math(EXPR offset "${offset} + ${bytes} + 1")
endforeach()

file(ARCHIVE_CREATE OUTPUT "${OUTPUT}.zst" PATHS "${OUTPUT}.texts" FORMAT raw COMPRESSION Zstd COMPRESSION_LEVEL 9)
file(SIZE "${OUTPUT}.zst" packed_bytes)
file(READ "${OUTPUT}.zst" packed HEX)
string(REGEX REPLACE "(................................)" "\\1\n  " packed "${packed}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," packed "${packed}")

file(WRITE "${OUTPUT}.new" "/* Written by cmake/embed_sources.cmake. */
#include \"${HEADER}\"

const unsigned char ${PREFIX}_texts[] = {
  ${packed}
};

const size_t ${PREFIX}_texts_packed_bytes = ${packed_bytes};
const size_t ${PREFIX}_texts_bytes = ${offset};

const struct embedded_source ${PREFIX}_sources[] = {
${table}    {NULL, 0, 0, NULL},
};

const size_t ${PREFIX}_source_count = ${count};
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
