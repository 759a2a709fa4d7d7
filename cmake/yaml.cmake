# kjit::yaml: the archive of libyaml, so that libkjit.so needs nothing but libc. The library takes the parser out of it,
# for family files (src/family/file/yaml_tree.c). Read like sodium.cmake.
if(NOT TARGET kjit::yaml)
  find_library(KJIT_YAML_LIBRARY NAMES libyaml.a yaml DOC "libyaml, its archive where there is one")
  find_path(KJIT_YAML_INCLUDE_DIR yaml.h DOC "folder of yaml.h")
  mark_as_advanced(KJIT_YAML_LIBRARY KJIT_YAML_INCLUDE_DIR)
  if(KJIT_YAML_LIBRARY AND KJIT_YAML_INCLUDE_DIR)
    add_library(kjit::yaml UNKNOWN IMPORTED)
    set_target_properties(kjit::yaml PROPERTIES
      IMPORTED_LOCATION ${KJIT_YAML_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${KJIT_YAML_INCLUDE_DIR})
  elseif(PROJECT_NAME STREQUAL "kjit")
    message(FATAL_ERROR "libyaml was not found: on Debian, apt-get install libyaml-dev")
  endif()
endif()
