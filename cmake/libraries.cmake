# libkjit.so and libkjit.a are made from the same objects, and both show the symbols kjit_* alone.
function(kjit_add_library target type)
  add_library(${target} ${type} ${ARGN})
  add_library(kjit::${target} ALIAS ${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME kjit LINKER_LANGUAGE C)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m)
endfunction()

kjit_add_library(kjit SHARED $<TARGET_OBJECTS:kjit_objects>)
target_link_libraries(kjit PRIVATE kjit::sodium kjit::zstd kjit::yaml)
set(symbol_map ${PROJECT_SOURCE_DIR}/cmake/kjit.map)
set_target_properties(kjit PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${symbol_map}
  BUILD_RPATH "" INSTALL_RPATH "")
target_link_options(kjit PRIVATE LINKER:--version-script=${symbol_map} LINKER:--exclude-libs,ALL)
if(NOT KJIT_SANITIZE AND NOT KJIT_FUZZ) # a sanitizer's runtime comes with the program, not with the library
  target_link_options(kjit PRIVATE LINKER:--no-undefined)
endif()

# In an archive hidden symbols would still meet those of the program that links it, and the internal names have no
# prefix. So the objects are joined into one, with what they need of libsodium, zstd and libyaml, and everything but
# kjit_* made local to it. A program that links libkjit.a then needs none of the three, and may use other versions of
# them. A library of which this machine has no archive has to be linked by the program.
set(joined_archives "")
set(left_to_user "")
foreach(dependency sodium zstd yaml)
  string(TOUPPER ${dependency} name)
  if(KJIT_${name}_LIBRARY MATCHES "\\.a$")
    list(APPEND joined_archives ${KJIT_${name}_LIBRARY})
  else()
    list(APPEND left_to_user ${dependency})
  endif()
endforeach()
set(joined ${PROJECT_BINARY_DIR}/kjit_joined.o)
add_custom_command(OUTPUT ${joined}
  COMMAND ${CMAKE_LINKER} -r -o ${joined} $<TARGET_OBJECTS:kjit_objects> ${joined_archives}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=kjit_* ${joined}
  DEPENDS kjit_objects $<TARGET_OBJECTS:kjit_objects>
  COMMAND_EXPAND_LISTS VERBATIM)
kjit_add_library(kjit_static STATIC ${joined})
foreach(dependency IN LISTS left_to_user)
  target_link_libraries(kjit_static PRIVATE kjit::${dependency})
endforeach()

# The same objects with all their symbols, for the unit tests, which call internal functions.
add_library(kjit_internal STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:kjit_objects>)
set_target_properties(kjit_internal PROPERTIES LINKER_LANGUAGE C)
target_include_directories(kjit_internal INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
                                                   ${PROJECT_SOURCE_DIR}/kernel_src)
target_link_libraries(kjit_internal INTERFACE kjit::sodium kjit::zstd kjit::yaml kjit_cuda_headers Threads::Threads
                                              ${CMAKE_DL_LIBS} m)
