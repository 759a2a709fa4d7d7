/**
 * @file
 * Everything: includes all of kjit's headers. This page says what kjit is, how it is used and what is stable.
 *
 * kjit compiles CUDA kernels at run time, by NVRTC, for exactly the configuration that was asked for; keeps the cubins
 * in a cache under a key of everything that can change them; loads and launches them by the driver API. It links
 * neither to NVRTC nor to libcuda: each is opened when it is first needed. Without a GPU everything up to loading
 * works, and with a warm cache or a bundle everything works without NVRTC.
 *
 * A program makes one ::kjit_runtime and keeps it (runtime.h). All threads may share it.
 *
 * @par 1. Attention, ready to call (attention.h)
 * kjit_attention_forward() takes tensors and a stream. It chooses the kernel family and its config by written rules, or
 * by a table that `kjit tune` measured (tune.h); or the caller names the config (flash_forward.h, attention_sm90.h). A
 * plan does all checks once, so that each further run is one launch.
 *
 * @par 2. Your own kernel (build.h, kernel.h)
 * kjit_kernel_get() takes CUDA C++ source, its #defines and the name of the kernel, and returns a loaded kernel;
 * kjit_kernel_launch() launches it. kjit_build() stops at the cubin and needs no GPU.
 *
 * @par 3. Kernels made elsewhere (bundle.h, record.h, cache.h)
 * kjit_runtime_record() writes down what a program asks for; `kjit warm` builds that list on another machine; `kjit
 * bundle create` puts it into one file, which a program ships and names in kjit_runtime_options.bundle_paths.
 *
 * @code
 *   kjit_runtime *runtime = NULL;
 *   kjit_error error;
 *   if (kjit_runtime_create(&runtime, NULL, &error) != KJIT_OK) return fail(error.message);
 *   ...
 *   kjit_runtime_destroy(runtime);
 * @endcode
 *
 * @par What is stable
 * From 1.0 on: the functions and structs of these headers (a struct grows only at its end, and says its size by
 * `struct_size`), the numbers of ::kjit_status, the command's options, JSON and exit codes, and the format of bundles.
 * Until then any of these may change with a minor version, as CHANGELOG.md says. Never stable: keys and the layout of
 * the cache folder. After a change old entries are not found and are evicted in time.
 *
 * common.h has the conventions of all functions: order of arguments, ownership, errors, words for thread safety.
 */
#ifndef KJIT_KJIT_H
#define KJIT_KJIT_H

#include <kjit/attention.h>
#include <kjit/attention_backward.h>
#include <kjit/attention_decode_sm90.h>
#include <kjit/attention_serving.h>
#include <kjit/attention_short_sm90.h>
#include <kjit/attention_sm90.h>
#include <kjit/attention_variant.h>
#include <kjit/build.h>
#include <kjit/bundle.h>
#include <kjit/cache.h>
#include <kjit/common.h>
#include <kjit/contest.h>
#include <kjit/doctor.h>
#include <kjit/family.h>
#include <kjit/family_description.h>
#include <kjit/family_tune.h>
#include <kjit/flash_forward.h>
#include <kjit/kernel.h>
#include <kjit/module.h>
#include <kjit/record.h>
#include <kjit/remote.h>
#include <kjit/runtime.h>
#include <kjit/sealed.h>
#include <kjit/tensor.h>
#include <kjit/tensor_map.h>
#include <kjit/tune.h>
#include <kjit/worker.h>

#endif
