// CUDA's built-in functions on memory.
#ifndef KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_MEMORY_H
#define KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_MEMORY_H

inline unsigned long long __cvta_generic_to_shared(const void *pointer) {
  return emulator->shared_address(pointer);
}
inline unsigned long long __cvta_generic_to_grid_constant(const void *parameter) {
  return (unsigned long long)parameter;
}

// Fibers change places only where they wait, so that what the fences order is in order already; the machine keeps what
// other blocks may rely on.
inline void __threadfence() {
  emulator->fence();
}
inline void __threadfence_block() {}
// Other warps run in the meantime, of other blocks too, so that a thread can wait for what they write.
inline void __nanosleep(unsigned) {
  emulator->sleep();
}

// One fiber runs at a time: a read and a write after it are atomic.
template <typename Type, typename Change>
inline Type emulator_atomic(Type *address, Change change, emulator_order order = EMULATOR_RELAXED) {
  Type old;
  emulator->load_atomic(&old, address, sizeof old, order);
  const Type changed = change(old);
  emulator->store_atomic(address, &changed, sizeof changed, order);
  return old;
}

template <typename Type, typename Value>
inline Type emulator_add(Type *address, Value value, emulator_order order = EMULATOR_RELAXED) {
  return emulator_atomic(
      address, [&](Type old) { return static_cast<Type>(old + static_cast<Type>(value)); }, order);
}
template <typename Type, typename Value> inline Type atomicAdd(Type *address, Value value) {
  return emulator_add(address, value);
}
// Sums of gradients.
template <typename Value> inline float atomicAdd(float *address, Value value) {
  return emulator_add(address, value, EMULATOR_ADDS);
}
template <typename Type, typename Value> inline Type atomicMax(Type *address, Value value) {
  return emulator_atomic(address,
                         [&](Type old) { return old > static_cast<Type>(value) ? old : static_cast<Type>(value); });
}
template <typename Type, typename Value> inline Type atomicCAS(Type *address, Value expected, Value value) {
  return emulator_atomic(address, [&](Type old) { return old == expected ? static_cast<Type>(value) : old; });
}
template <typename Type, typename Value> inline Type atomicExch(Type *address, Value value) {
  return emulator_atomic(address, [&](Type) { return static_cast<Type>(value); });
}

#endif
