// What the instructions of kernel_src/kjit/ptx/tma.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
             " [%0], [%1, {%3, %4}], [%2];"){
    static void run(unsigned shared, const void *map, unsigned barrier, int c0, int c1){const int at[2] = {c0, c1};
emulator->tensor_load(shared, map, barrier, at, 2);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"){
    static void run(const void *map, unsigned shared, int c0, int c1){const int at[2] = {c0, c1};
emulator->tensor_store(map, shared, at, 2);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
             " [%0], [%1, {%3, %4, %5}], [%2];"){static void run(unsigned shared, const void *map, unsigned barrier,
                                                                 int c0, int c1, int c2){const int at[3] = {c0, c1, c2};
emulator->tensor_load(shared, map, barrier, at, 3);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"){
    static void run(const void *map, unsigned shared, int c0, int c1, int c2){const int at[3] = {c0, c1, c2};
emulator->tensor_store(map, shared, at, 3);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
             " [%0], [%1, {%3, %4, %5, %6}], [%2];"){static void run(unsigned shared, const void *map, unsigned barrier,
                                                                     int c0, int c1, int c2,
                                                                     int c3){const int at[4] = {c0, c1, c2, c3};
emulator->tensor_load(shared, map, barrier, at, 4);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"){
    static void run(const void *map, unsigned shared, int c0, int c1, int c2,
                    int c3){const int at[4] = {c0, c1, c2, c3};
emulator->tensor_store(map, shared, at, 4);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
             " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"){
    static void run(unsigned shared, const void *map, unsigned barrier, int c0, int c1, int c2, int c3,
                    int c4){const int at[5] = {c0, c1, c2, c3, c4};
emulator->tensor_load(shared, map, barrier, at, 5);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"){
    static void run(const void *map, unsigned shared, int c0, int c1, int c2, int c3,
                    int c4){const int at[5] = {c0, c1, c2, c3, c4};
emulator->tensor_store(map, shared, at, 5);
}
}
;

// Which data stays in L2 is not looked at.
EMULATOR_PTX("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
             " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"){
    static void run(unsigned shared, const void *map, unsigned barrier, int c0, int c1, int c2, int c3,
                    unsigned long long){const int at[4] = {c0, c1, c2, c3};
emulator->tensor_load(shared, map, barrier, at, 4);
}
}
;

// A block is a cluster by itself here.
EMULATOR_PTX("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
             " [%0], [%1, {%4, %5}], [%2], %3;"){static void run(unsigned shared, const void *map, unsigned barrier,
                                                                 unsigned short blocks, int c0,
                                                                 int c1){const int at[2] = {c0, c1};
if (blocks != 1) emulator->trap();
emulator->tensor_load(shared, map, barrier, at, 2);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
             " [%0], [%1, {%4, %5, %6}], [%2], %3;"){static void run(unsigned shared, const void *map, unsigned barrier,
                                                                     unsigned short blocks, int c0, int c1,
                                                                     int c2){const int at[3] = {c0, c1, c2};
if (blocks != 1) emulator->trap();
emulator->tensor_load(shared, map, barrier, at, 3);
}
}
;

EMULATOR_PTX("prefetch.tensormap [%0];"){static void run(const void *){}};

EMULATOR_PTX("cp.async.bulk.commit_group;"){static void run(){emulator->tensor_store_commit();
}
}
;

EMULATOR_PTX("cp.async.bulk.wait_group.read %0;"){
    static void run(int pending){emulator->tensor_store_wait(pending, true);
}
}
;

EMULATOR_PTX("cp.async.bulk.wait_group %0;"){static void run(int pending){emulator->tensor_store_wait(pending, false);
}
}
;

EMULATOR_PTX("fence.proxy.async.shared::cta;"){static void run(){emulator->shared_proxy_fence();
}
}
;

#include_next <kjit/ptx/tma.cuh>
