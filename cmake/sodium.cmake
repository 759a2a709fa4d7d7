# kjit::sodium: the archive of libsodium, so that libkjit.so needs nothing but libc. Read by the project and, installed
# beside kjitConfig.cmake, by projects that link to kjit::kjit_static.
if(NOT TARGET kjit::sodium)
  find_library(KJIT_SODIUM_LIBRARY NAMES libsodium.a sodium DOC "libsodium, its archive where there is one")
  find_path(KJIT_SODIUM_INCLUDE_DIR sodium.h DOC "folder of sodium.h")
  mark_as_advanced(KJIT_SODIUM_LIBRARY KJIT_SODIUM_INCLUDE_DIR)
  if(KJIT_SODIUM_LIBRARY AND KJIT_SODIUM_INCLUDE_DIR)
    add_library(kjit::sodium UNKNOWN IMPORTED)
    set_target_properties(kjit::sodium PROPERTIES
      IMPORTED_LOCATION ${KJIT_SODIUM_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${KJIT_SODIUM_INCLUDE_DIR})
  elseif(PROJECT_NAME STREQUAL "kjit")
    message(FATAL_ERROR "libsodium was not found: on Debian, apt-get install libsodium-dev")
  endif()
endif()
