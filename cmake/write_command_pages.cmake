# cmake -DKJIT=the command -DVERSION=0.1.0 -DFOLDER=where -P write_command_pages.cmake
# Writes kjit.1, kjit.bash, _kjit and kjit.fish. Steps: run the command for each text, escape what roff would take for
# its own (backslashes; hyphens, which would become another character; dots and quotes at the start of a line).
function(run_kjit output)
  execute_process(COMMAND ${KJIT} ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${KJIT} ${ARGN} ended with ${code}")
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

function(escape_for_roff output text)
  string(REPLACE "\\" "\\e" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REGEX REPLACE "(^|\n)([.'])" "\\1\\\\&\\2" text "${text}")
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

run_kjit(overview help)
escape_for_roff(overview_text "${overview}")
set(page ".TH KJIT 1 \"\" \"kjit ${VERSION}\" \"User Commands\"
.SH NAME
kjit \\- compile CUDA kernels at run time, and look after their cache
.SH OVERVIEW
.EX
${overview_text}.EE
.SH COMMANDS
")
run_kjit(names completion words)
string(REGEX MATCHALL "[^\n]+" names "${names}")
foreach(name IN LISTS names)
  run_kjit(usage ${name} --help)
  escape_for_roff(usage "${usage}")
  string(APPEND page ".SS kjit ${name}\n.EX\n${usage}.EE\n")
endforeach()
file(WRITE ${FOLDER}/kjit.1 "${page}")

foreach(pair bash:kjit.bash zsh:_kjit fish:kjit.fish)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 shell)
  list(GET pair 1 file)
  run_kjit(script completion ${shell})
  file(WRITE ${FOLDER}/${file} "${script}")
endforeach()
