// The products of a warp that the config takes, by the bytes of an element of K and V.
//
// Whoever includes this has included a config.cuh that defines the constants of namespace cfg.
#pragma once
#include <kjit/types.cuh>

#if KJIT_cache == 24
#include "attention_serving/products_e4m3.cuh"
using Products = NarrowProducts;
#else
#include "attention_serving/products.cuh"
using Products = WideProducts;
#endif
