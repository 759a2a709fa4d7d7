/**
 * @file
 * Everything: kjit compiles CUDA kernels at run time for exactly the configuration that was asked for, keeps the cubins
 * in a cache that can be trusted, and launches them.
 */
#ifndef KJIT_KJIT_H
#define KJIT_KJIT_H

#include <kjit/attention.h>
#include <kjit/attention_sm90.h>
#include <kjit/build.h>
#include <kjit/bundle.h>
#include <kjit/cache.h>
#include <kjit/common.h>
#include <kjit/doctor.h>
#include <kjit/family.h>
#include <kjit/flash_forward.h>
#include <kjit/kernel.h>
#include <kjit/module.h>
#include <kjit/record.h>
#include <kjit/runtime.h>
#include <kjit/sealed.h>
#include <kjit/tensor.h>
#include <kjit/tensor_map.h>
#include <kjit/tune.h>
#include <kjit/worker.h>

#endif
