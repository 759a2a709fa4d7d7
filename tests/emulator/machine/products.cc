// Products of warpgroups.
#include "machine/state.h"

namespace emulator {

void fill_products(emulator_device_api *) {}

} // namespace emulator
