/* What NVRTC predefines, by target, options and version: read from NVRTC 13.0 by compiling a source that asks for every
 * name in the toolkit's headers and in the compiler itself. Where another version differs, a walk takes another branch
 * than the compiler; include_closure.c says why that does no harm. Thread-safe: only the caller's table is written. */
#include "jit/source/predefined.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The version that these texts were read from; used when the compiler's version is not known. */
#define DEFAULT_VERSION 13000

/* In every compile, whatever the options. Many are guards of headers that NVRTC has inside, so that a toolkit's header
 * of that name is skipped. */
static const char always[] = "CUDARTAPI\n"
                             "CU_UUID_HAS_BEEN_DEFINED\n"
                             "_BOOL 1\n"
                             "_NV_COMPILER_NVCC\n"
                             "_NV__TARGET_MACROS\n"
                             "_WCHAR_T 1\n"
                             "__ARRAY_OPERATORS 1\n"
                             "__CHAR16_T_AND_CHAR32_T 1\n"
                             "__COMMON_FUNCTIONS_H__\n"
                             "__CUDACC_RTC_BUILTIN_VECTOR_TYPES__ 1\n"
                             "__CUDACC_RTC__ 1\n"
                             "__CUDACC__ 1\n"
                             "__CUDA_RUNTIME_API_H__\n"
                             "__CUDA_RUNTIME_H__\n"
                             "__DEVICE_ATOMIC_FUNCTIONS_H__\n"
                             "__DEVICE_DOUBLE_FUNCTIONS_H__\n"
                             "__DEVICE_FUNCTIONS_H__\n"
                             "__DEVICE_LAUNCH_PARAMETERS_H__\n"
                             "__DEVICE_TYPES_H__\n"
                             "__DRIVER_TYPES_H__\n"
                             "__EDG_CONSTEXPR_ENABLED__ 1\n"
                             "__EDG_IA64_ABI 1\n"
                             "__EDG_PTRDIFF_TYPE__ long\n"
                             "__EDG_RUNTIME_USES_NAMESPACES 1\n"
                             "__EDG_SIZE_TYPE__ unsigned long\n"
                             "__EDG_TYPE_TRAITS_ENABLED 1\n"
                             "__EDG_VERSION__ 606\n"
                             "__EDG__ 1\n"
                             "__EXCEPTIONS 1\n"
                             "__HOST_CONFIG_H__\n"
                             "__HOST_DEFINES_H__\n"
                             "__LIBRARY_TYPES_H__\n"
                             "__LP64__ 1\n"
                             "__MATH_FUNCTIONS_H__\n"
                             "__NVCC_DIAG_PRAGMA_SUPPORT__ 1\n"
                             "__NV_GLIBC_PROVIDES_IEC_60559_FUNCS 0\n"
                             "__NV_SILENCE_DEPRECATION_BEGIN\n"
                             "__NV_SILENCE_DEPRECATION_END\n"
                             "__NV_TARGET_H\n"
                             "__PLACEMENT_DELETE 1\n"
                             "__PRAGMA_REDEFINE_EXTNAME 1\n"
                             "__RTTI 1\n"
                             "__SIGNED_CHARS__ 1\n"
                             "__SM_100_RT_H__\n"
                             "__SM_30_INTRINSICS_H__\n"
                             "__SM_32_INTRINSICS_H__\n"
                             "__SM_35_ATOMIC_FUNCTIONS_H__\n"
                             "__SM_35_INTRINSICS_H__\n"
                             "__SM_80_RT_H__\n"
                             "__SM_90_RT_H__\n"
                             "__STDCPP_DEFAULT_NEW_ALIGNMENT__ 16ul\n"
                             "__STDC_HOSTED__ 1\n"
                             "__STDC__ 1\n"
                             "__SURFACE_INDIRECT_FUNCTIONS_H__\n"
                             "__SURFACE_TYPES_H__\n"
                             "__TEXTURE_INDIRECT_FUNCTIONS_H__\n"
                             "__TEXTURE_TYPES_H__\n"
                             "__VARIADIC_TEMPLATES 1\n"
                             "__VECTOR_FUNCTIONS_H__\n"
                             "__VECTOR_TYPES_H__\n"
                             "__align__ __align__\n"
                             "__block_size__ __block_size__\n"
                             "__cdecl\n"
                             "__cluster_dims__ __cluster_dims__\n"
                             "__constant__ __attribute__((constant))\n"
                             "__cudaGet_blockDim __cudaGet_blockDim\n"
                             "__cudaGet_blockIdx __cudaGet_blockIdx\n"
                             "__cudaGet_gridDim __cudaGet_gridDim\n"
                             "__cudaGet_threadIdx __cudaGet_threadIdx\n"
                             "__cudaGet_warpSize __cudaGet_warpSize\n"
                             "__cudart_builtin__ __attribute__((cudart_builtin))\n"
                             "__device__ __attribute__((device))\n"
                             "__device_builtin__ __attribute__((device_builtin))\n"
                             "__device_builtin_surface_type__ __attribute__((device_builtin_surface_type))\n"
                             "__device_builtin_texture_type__ __attribute__((device_builtin_texture_type))\n"
                             "__global__ __attribute__((global))\n"
                             "__grid_constant__ __attribute__((grid_constant))\n"
                             "__host__ __attribute__((host))\n"
                             "__launch_bounds__ __launch_bounds__\n"
                             "__local_maxnreg__ __local_maxnreg__\n"
                             "__managed__ __attribute__((managed))\n"
                             "__maxnreg__ __maxnreg__\n"
                             "__noinline__ __attribute__((noinline))\n"
                             "__nv_pure__ __attribute__((nv_pure))\n"
                             "__nv_register_params__ __attribute__((nv_register_params))\n"
                             "__shared__ __attribute__((shared))\n"
                             "__tile__ __attribute__((tile))\n"
                             "__tile_builtin__ __attribute__((tile_builtin))\n"
                             "__tile_global__ __attribute__((tile_global))\n";

/* What the compiler predefines with --std=c++17, which is the default here. Conditions on these macros choose code,
 * hardly ever headers. */
static const char language[] = "__cpp_aggregate_bases 201603L\n"
                               "__cpp_aggregate_nsdmi 201304L\n"
                               "__cpp_alias_templates 200704L\n"
                               "__cpp_aligned_new 201606L\n"
                               "__cpp_attributes 200809L\n"
                               "__cpp_binary_literals 201304L\n"
                               "__cpp_capture_star_this 201603L\n"
                               "__cpp_constexpr 201603L\n"
                               "__cpp_decltype 200707L\n"
                               "__cpp_decltype_auto 201304L\n"
                               "__cpp_deduction_guides 201703L\n"
                               "__cpp_delegating_constructors 200604L\n"
                               "__cpp_enumerator_attributes 201411L\n"
                               "__cpp_exceptions 199711L\n"
                               "__cpp_fold_expressions 201603L\n"
                               "__cpp_generic_lambdas 201304L\n"
                               "__cpp_guaranteed_copy_elision 201606L\n"
                               "__cpp_hex_float 201603L\n"
                               "__cpp_if_constexpr 201606L\n"
                               "__cpp_inheriting_constructors 201511L\n"
                               "__cpp_init_captures 201304L\n"
                               "__cpp_initializer_lists 200806L\n"
                               "__cpp_inline_variables 201606L\n"
                               "__cpp_lambdas 200907L\n"
                               "__cpp_namespace_attributes 201411L\n"
                               "__cpp_nested_namespace_definitions 201411L\n"
                               "__cpp_noexcept_function_type 201510L\n"
                               "__cpp_nontype_template_args 201411L\n"
                               "__cpp_nontype_template_parameter_auto 201606L\n"
                               "__cpp_nsdmi 200809L\n"
                               "__cpp_range_based_for 201603L\n"
                               "__cpp_raw_strings 200710L\n"
                               "__cpp_ref_qualifiers 200710L\n"
                               "__cpp_return_type_deduction 201304L\n"
                               "__cpp_rtti 199711L\n"
                               "__cpp_rvalue_references 200610L\n"
                               "__cpp_sized_deallocation 201309L\n"
                               "__cpp_static_assert 201411L\n"
                               "__cpp_structured_bindings 201606L\n"
                               "__cpp_template_template_args 201611L\n"
                               "__cpp_threadsafe_static_init 200806L\n"
                               "__cpp_unicode_characters 200704L\n"
                               "__cpp_unicode_literals 200710L\n"
                               "__cpp_user_defined_literals 200809L\n"
                               "__cpp_variable_templates 201304L\n"
                               "__cpp_variadic_templates 200704L\n"
                               "__cpp_variadic_using 201611L\n";

/* Names that a condition may ask for with defined(), though they are no macros with a text. The compiler answers them
 * itself. */
static const char answered[] = "__has_attribute\n"
                               "__has_cpp_attribute\n"
                               "__has_builtin\n"
                               "__has_feature\n"
                               "__has_extension\n"
                               "__has_include\n"
                               "__has_include_next\n"
                               "__is_identifier\n"
                               "NV_IF_TARGET\n"
                               "assert\n";

/* One macro for each line, "NAME" or "NAME text"; the table points into the text, which is constant. */
static void define_lines(struct macro_table *macros, const char *lines) {
  for (const char *end; (end = strchr(lines, '\n')); lines = end + 1)
    macro_define(macros, lines, (size_t)(end - lines));
}

KJIT_PRINTF(2, 3)
static void define(struct macro_table *macros, const char *format, ...) {
  char line[128];
  va_list arguments;
  va_start(arguments, format);
  const int bytes = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const char *copy = bytes > 0 && bytes < (int)sizeof line ? arena_copy(macros->arena, line, (size_t)bytes) : NULL;
  if (copy) macro_define(macros, copy, (size_t)bytes);
}

static bool has_option(const struct include_terms *terms, const char *option) {
  for (size_t i = 0; i < terms->option_count; i++)
    if (!strcmp(terms->options[i], option)) return true;
  return false;
}

/* The names that headers choose an architecture's code by. "a" targets have all features of one chip, "f" targets those
 * of its family. */
static void define_target(struct macro_table *macros, const struct target *target) {
  const unsigned arch = target->capability * 10;
  define(macros, "__CUDA_ARCH__ %u", arch);
  define(macros, "__CUDA_ARCH_LIST__ %u", arch);
  define(macros, "__CUDA_MINIMUM_ARCH__ %u", arch);
  if (target->suffix) define(macros, "__CUDA_ARCH_FAMILY_SPECIFIC__ %u", arch);
  if (target->suffix != 'a') return;
  define(macros, "__CUDA_ARCH_SPECIFIC__ %u", arch);
  define(macros, "__CUDA_ARCH_FEAT_SM%u_ALL 1", (unsigned)target->capability);
  define(macros, "NV_HAS_FEATURE_SM_%ua __NV_HAS_FEATURE_SM_%ua", (unsigned)target->capability,
         (unsigned)target->capability);
}

/* The C++ standard that an option asks for, or else the library's default. */
static long standard(const struct include_terms *terms) {
  static const struct {
    const char *name;
    long value;
  } standards[] = {{"03", 199711}, {"11", 201103}, {"14", 201402}, {"17", 201703}, {"20", 202002}, {"23", 202302}};
  long value = 201703;
  for (size_t i = 0; i < terms->option_count; i++) {
    if (strncmp(terms->options[i], "--std=c++", 9) != 0) continue;
    for (size_t j = 0; j < sizeof standards / sizeof *standards; j++)
      if (!strcmp(terms->options[i] + 9, standards[j].name)) value = standards[j].value;
  }
  return value;
}

/* The version in the forms of nvcc, of the runtime's headers and of the driver's. */
static void define_version(struct macro_table *macros, unsigned version) {
  const unsigned major = version / 1000, minor = version / 10 % 100;
  define(macros, "__CUDACC_VER_MAJOR__ %u", major);
  define(macros, "__CUDACC_VER_MINOR__ %u", minor);
  define(macros, "__CUDA_API_VER_MAJOR__ %u", major);
  define(macros, "__CUDA_API_VER_MINOR__ %u", minor);
  define(macros, "CUDART_VERSION %u", version);
  define(macros, "__CUDART_API_VERSION %u", version);
}

/* The order is that of precedence: the request's own defines come behind NVRTC's, as they stand in front of the
 * source but behind what the compiler has built in. */
void predefined_define(struct macro_table *macros, const struct include_terms *terms) {
  const bool fast = has_option(terms, "--use_fast_math") || has_option(terms, "--ftz=true");
  define_lines(macros, always);
  define_lines(macros, language);
  define_lines(macros, answered);
  define_version(macros, terms->cuda_version ? terms->cuda_version : DEFAULT_VERSION);
  define(macros, "__cplusplus %ldL", standard(terms));
  define(macros, "__CUDA_FTZ %d", fast);
  if (terms->target) define_target(macros, terms->target);
  if (has_option(terms, "--device-debug")) define(macros, "__CUDACC_DEBUG__ 1");
  if (has_option(terms, "--minimal")) define(macros, "__CUDACC_RTC_MINIMAL__ 1");
  if (has_option(terms, "--relocatable-device-code=true")) define(macros, "__CUDACC_RDC__ 1");
  /* The request's own defines come last, as they stand in the source. */
  for (const char *line = terms->prologue; line && *line; line += strcspn(line, "\n") + 1) {
    const size_t bytes = strcspn(line, "\n");
    if (bytes > 8 && !memcmp(line, "#define ", 8)) macro_define(macros, line + 8, bytes - 8);
    if (!line[bytes]) break;
  }
}
