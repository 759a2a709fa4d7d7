# What runs once in a process, once for a kernel that has to be compiled, or for a person: behind a file, a compiler or a
# terminal, which take far longer. Compiled for size where the library is shipped; what answers from memory, takes
# digests and checksums, loads and launches is not.
foreach(name
    attention/attention_build attention/flash_build attention/flash_rules attention/flash_sets attention/flash_text
    attention/flash_variant attention/sm90_build attention/sm90_text attention/tune_api attention/tune_candidates
    attention/tune_family attention/tune_load attention/tune_shipped attention/tune_text attention/tune_update
    base/dynlib base/elf_view base/file base/log base/one_line
    jit/artifact jit/builder_create jit/builder_fork jit/builder_produce jit/bundle jit/bundle_format jit/bundle_frame
    jit/bundle_layout jit/bundle_set jit/bundle_trust jit/bundle_visit jit/bundle_writer jit/cache_admin
    jit/cache_bundle jit/cache_dir jit/cache_evict jit/cache_lock jit/cache_pack jit/cache_tidy jit/cache_upkeep
    jit/cache_usage jit/cache_walk jit/cache_why jit/compile jit/compile_options jit/cubin jit/custom_request
    jit/disk_cache jit/entry_filter jit/entry_name jit/entry_read jit/entry_write jit/failure_cache jit/file_ops
    jit/fork_guard jit/include_closure jit/include_scan jit/key jit/key_items jit/key_reader jit/nvrtc jit/nvrtc_find
    jit/nvrtc_identity jit/pair_form jit/ptxas_log jit/record jit/scanner jit/short_form jit/side_file jit/source_set
    jit/target jit/temp_file
    runtime/bundle_api runtime/cache_api runtime/device runtime/doctor runtime/driver runtime/gpu runtime/prepare runtime/record_api
    runtime/runtime runtime/timing)
  set(file ${PROJECT_SOURCE_DIR}/src/${name}.c)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "cmake/cold_sources.cmake names ${file}, which is not there")
  endif()
  set_source_files_properties(${file} TARGET_DIRECTORY kjit_objects PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-Os>")
endforeach()
