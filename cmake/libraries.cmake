# libkjit.so and libkjit.a, both of the objects. Only kjit_* leaves the shared one.
function(kjit_add_library target type)
  add_library(${target} ${type} $<TARGET_OBJECTS:kjit_objects>)
  add_library(kjit::${target} ALIAS ${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME kjit LINKER_LANGUAGE C)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE kjit::sodium Threads::Threads ${CMAKE_DL_LIBS} m)
endfunction()

kjit_add_library(kjit SHARED)
kjit_add_library(kjit_static STATIC)

set(symbol_map ${PROJECT_SOURCE_DIR}/cmake/kjit.map)
set_target_properties(kjit PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${symbol_map})
target_link_options(kjit PRIVATE LINKER:--version-script=${symbol_map} LINKER:--exclude-libs,ALL)
if(NOT KJIT_SANITIZE AND NOT KJIT_FUZZ) # a sanitizer's runtime comes with the program, not with the library
  target_link_options(kjit PRIVATE LINKER:--no-undefined)
endif()
