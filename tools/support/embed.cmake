# cmake -DOUTPUT=check_sources.c -DFILES="a;b" -P embed.cmake: the files as bytes, by name.
set(arrays "")
set(rows "")
set(index 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "static const unsigned char file_${index}[] = {\n${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", (const char *)file_${index}, sizeof file_${index} - 1},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "/* Made by tools/support/embed.cmake. */
#include \"support/check_sources.h\"

#include <string.h>

${arrays}
static const kjit_source sources[] = {
${rows}};

kjit_source check_source(const char *name) {
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
    if (strcmp(sources[i].name, name) == 0) return sources[i];
  return (kjit_source){name, \"\", 0};
}
")
