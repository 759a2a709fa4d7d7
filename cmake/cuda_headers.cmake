# kjit_cuda_headers: <cuda.h> and <nvrtc.h>, for their types alone. Nothing of CUDA is linked.
#
# The headers are looked for in $CUDA_HOME, /usr/local/cuda, /usr/local/cuda-*, and in build/cuda, where
# tools/fetch-cuda puts them. KJIT_IGNORE_SYSTEM_CUDA (variable or environment) leaves the toolkits of the machine out.
set(fetched_cuda ${PROJECT_SOURCE_DIR}/build/cuda)
set(cuda_roots "")
if(NOT KJIT_IGNORE_SYSTEM_CUDA AND NOT "$ENV{KJIT_IGNORE_SYSTEM_CUDA}")
  file(GLOB versioned_roots /usr/local/cuda-*)
  list(SORT versioned_roots COMPARE NATURAL ORDER DESCENDING)
  set(cuda_roots $ENV{CUDA_HOME} /usr/local/cuda ${versioned_roots})
endif()
list(APPEND cuda_roots ${fetched_cuda})

foreach(header cuda nvrtc)
  find_path(KJIT_${header}_INCLUDE_DIR ${header}.h PATHS ${cuda_roots} PATH_SUFFIXES include NO_DEFAULT_PATH
            DOC "folder of ${header}.h")
  if(NOT KJIT_${header}_INCLUDE_DIR)
    message(FATAL_ERROR "${header}.h was not found in ${cuda_roots}. Install a CUDA toolkit, or set CUDA_HOME, "
                        "or run tools/fetch-cuda, which gets the headers and NVRTC into ${fetched_cuda}.")
  endif()
endforeach()

add_library(kjit_cuda_headers INTERFACE)
target_include_directories(kjit_cuda_headers SYSTEM INTERFACE ${KJIT_cuda_INCLUDE_DIR} ${KJIT_nvrtc_INCLUDE_DIR})
