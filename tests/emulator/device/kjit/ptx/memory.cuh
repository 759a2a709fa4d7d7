// What the instructions of kernel_src/kjit/ptx/memory.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"){
    static void run(unsigned &w0, unsigned &w1, unsigned &w2, unsigned &w3, const void *global){kjit::Chunk c;
emulator->load_global(&c, global, sizeof c);
w0 = c.word[0], w1 = c.word[1], w2 = c.word[2], w3 = c.word[3];
}
}
;

EMULATOR_PTX("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};"){
    static void run(void *global, unsigned w0, unsigned w1, unsigned w2,
                    unsigned w3){const kjit::Chunk c = {{w0, w1, w2, w3}};
emulator->store_global(global, &c, sizeof c);
}
}
;

EMULATOR_PTX("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"){
    static void run(unsigned shared, unsigned w0, unsigned w1, unsigned w2,
                    unsigned w3){const kjit::Chunk c = {{w0, w1, w2, w3}};
emulator->store_shared(shared, &c, sizeof c);
}
}
;

EMULATOR_PTX("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"){
    static void run(unsigned &w0, unsigned &w1, unsigned &w2, unsigned &w3, unsigned shared){kjit::Chunk c;
emulator->load_shared(&c, shared, sizeof c);
w0 = c.word[0], w1 = c.word[1], w2 = c.word[2], w3 = c.word[3];
}
}
;

EMULATOR_PTX("st.shared.u32 [%0], %1;"){
    static void run(unsigned shared, unsigned value){emulator->store_shared(shared, &value, sizeof value);
}
}
;

EMULATOR_PTX("ld.shared.u32 %0, [%1];"){
    static void run(unsigned &value, unsigned shared){emulator->load_shared(&value, shared, sizeof value);
}
}
;

EMULATOR_PTX("st.shared.v2.u32 [%0], {%1, %2};"){
    static void run(unsigned shared, unsigned low, unsigned high){const unsigned values[2] = {low, high};
emulator->store_shared(shared, values, sizeof values);
}
}
;

EMULATOR_PTX("ld.shared.v2.u32 {%0, %1}, [%2];"){static void run(int &low, int &high, unsigned shared){int values[2];
emulator->load_shared(values, shared, sizeof values);
low = values[0], high = values[1];
}
}
;

EMULATOR_PTX("st.shared.v2.f32 [%0], {%1, %2};"){
    static void run(unsigned shared, float low, float high){const float values[2] = {low, high};
emulator->store_shared(shared, values, sizeof values);
}
}
;

// A block is a cluster by itself here.
EMULATOR_PTX("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"){
    static void run(float &w0, float &w1, float &w2, float &w3, unsigned shared){float values[4];
emulator->load_shared(values, shared, sizeof values);
w0 = values[0], w1 = values[1], w2 = values[2], w3 = values[3];
}
}
;

#include_next <kjit/ptx/memory.cuh>
