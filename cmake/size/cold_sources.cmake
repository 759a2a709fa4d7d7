# What makes the shipped library smaller at no cost that a program can measure. KJIT_SMALL=OFF leaves it out.
#
# 1. Folders whose code waits for a file, a compiler or a terminal are compiled for size, because the waiting takes a
#    thousand times longer than the code. Code that answers from memory, takes digests, chooses, loads or launches is
#    compiled for speed.
# 2. Two files of stubs keep code out of the library that kjit never runs but that the archives of libsodium and zstd
#    would bring along; each file says which.
option(KJIT_SMALL "compile the library's slow paths for size in release builds" ON)
if(NOT KJIT_SMALL)
  return()
endif()

# attention/backward launches too, but two or more kernels that each take as long as a forward call.
set(cold_folders base/files jit/admin jit/bundle jit/cache jit/compile jit/cubin jit/key jit/record jit/remote
    jit/request jit/server jit/source jit/toolkit attention/backward attention/tune attention/variant family/definition
    family/file family/tune)
set(cold_files
  attention/attention_empty.c attention/attention_tier.c attention/attention_variant_ahead.c attention/rule.c
  attention/prefill/prefill_config.c attention/serving/serving_arguments.c attention/serving/serving_config.c
  attention/serving/serving_model.c attention/serving_sm90/serving_sm90_config.c
  attention/flash/flash_config.c attention/flash/flash_sets.c attention/flash/flash_text.c
  base/dynlib.c base/log.c base/nvtx.c base/one_line.c base/target.c base/threads/quiet_thread.c
  family/config.c family/config_build.c family/config_occupancy.c family/pair_form.c family/scanner.c
  jit/artifact.c jit/builder_background.c jit/builder_call.c jit/builder_create.c jit/builder_fork.c jit/builder_held.c
  jit/builder_produce.c jit/builder_recorded.c base/threads/fork_guard.c jit/inspect.c
  runtime/api/bundle_api.c runtime/api/cache_api.c runtime/card.c runtime/device.c runtime/doctor.c runtime/driver.c
  runtime/gpu.c runtime/prepare.c runtime/primary.c runtime/api/record_api.c runtime/runtime.c
  runtime/timing.c)
# A launch asks these for its class and its row.
set(hot_files attention/tune/tune_attention.c attention/tune/tune_class.c family/tune/tune_store.c
              family/tune/tune_table.c)
# A look-up of a user's config asks these for its rules, its values and its class.
list(APPEND hot_files family/definition/definition_rules.c family/definition/definition_text.c
                      family/definition/definition_tune.c family/definition/definition_value.c family/file/family_api.c)
# Nine megabytes of headers go through the scanner before a compile of CUB.
list(APPEND hot_files jit/source/condition.c jit/source/directive_scan.c jit/source/include_closure.c
                      jit/source/include_find.c jit/source/include_walk.c jit/source/macro_expand.c
                      jit/source/macro_table.c)

foreach(folder IN LISTS cold_folders)
  file(GLOB names RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.c)
  list(APPEND cold_files ${names})
endforeach()
list(REMOVE_ITEM cold_files ${hot_files})
foreach(name IN LISTS cold_files)
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/src/${name})
    message(FATAL_ERROR "cmake/size/cold_sources.cmake names src/${name}, which does not exist")
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/${name} TARGET_DIRECTORY kjit_objects
    PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-Os>")
endforeach()

target_sources(kjit_objects PRIVATE ${PROJECT_SOURCE_DIR}/cmake/size/sodium_unused.c
                                    ${PROJECT_SOURCE_DIR}/cmake/size/zstd_legacy.c)
