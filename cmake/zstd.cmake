# kjit::zstd: the archive of zstd, so that libkjit.so needs nothing but libc. The library takes the decompressor out of
# it, which is a third of the whole; the kjit command the compressor too. Read like sodium.cmake.
if(NOT TARGET kjit::zstd)
  find_library(KJIT_ZSTD_LIBRARY NAMES libzstd.a zstd DOC "zstd, its archive where there is one")
  find_path(KJIT_ZSTD_INCLUDE_DIR zstd.h DOC "folder of zstd.h")
  mark_as_advanced(KJIT_ZSTD_LIBRARY KJIT_ZSTD_INCLUDE_DIR)
  if(KJIT_ZSTD_LIBRARY AND KJIT_ZSTD_INCLUDE_DIR)
    add_library(kjit::zstd UNKNOWN IMPORTED)
    set_target_properties(kjit::zstd PROPERTIES
      IMPORTED_LOCATION ${KJIT_ZSTD_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${KJIT_ZSTD_INCLUDE_DIR})
  elseif(PROJECT_NAME STREQUAL "kjit")
    message(FATAL_ERROR "zstd was not found: on Debian, apt-get install libzstd-dev")
  endif()
endif()
