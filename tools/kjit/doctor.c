/* `kjit doctor`: says what this machine has (NVRTC, driver, GPUs, tuned tables, cache folder), what works without what
 * is missing, and what to do about it. The library makes the report; this file prints it, as text or JSON. Exit code 0
 * whatever is missing, because a missing GPU is a finding and not a failure. One thread. */
#include "command.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: kjit doctor [--json]\n\n"
    "Says what this machine has: NVRTC, driver, GPUs and their tuned tables, cache folder; what\n"
    "works without what is missing, and what to do about it. Exit code 0 whatever is missing.\n";

static const char *cache_mode_name(uint32_t mode) {
  static const char *const names[] = {"default", "rw", "ro", "off"};
  return mode < sizeof names / sizeof *names ? names[mode] : "?";
}

static json_t *nvrtc_json(const kjit_doctor_report *report) {
  if (report->nvrtc_status != KJIT_OK)
    return json_pack("{s:b, s:o}", "found", 0, "message", json_text(report->nvrtc_message));
  return json_pack("{s:b, s:i, s:i, s:o, s:s}", "found", 1, "major", report->nvrtc_major, "minor", report->nvrtc_minor,
                   "path", json_text(report->nvrtc_path), "identity", report->nvrtc_identity);
}

static json_t *tuned_json(kjit_runtime *runtime, const kjit_device_info *device) {
  kjit_tune_info info = {.struct_size = sizeof info};
  if (kjit_tune_get_info(runtime, NULL, device, NULL, &info, NULL) != KJIT_OK) return json_null();
  return json_pack("{s:b, s:I, s:I, s:I, s:I, s:s, s:s}", "enabled", (int)info.enabled, "user_rows",
                   (json_int_t)info.user_rows, "site_rows", (json_int_t)info.site_rows, "shipped_rows",
                   (json_int_t)info.shipped_rows, "ignored_rows", (json_int_t)info.ignored_rows, "date", info.date,
                   "path", info.path);
}

static json_t *device_json(kjit_runtime *runtime, const kjit_device_info *device) {
  return json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:o}", "ordinal", device->ordinal, "name", device->name,
                   "arch", device->arch, "arch_specific", device->arch_specific, "multiprocessors",
                   (int)device->multiprocessors, "max_shared_per_block", (int)device->max_shared_per_block, "l2_bytes",
                   (json_int_t)device->l2_bytes, "memory_bytes", (json_int_t)device->memory_bytes, "tuned",
                   tuned_json(runtime, device));
}

static json_t *devices_json(kjit_runtime *runtime, uint32_t count) {
  json_t *devices = json_array();
  for (uint32_t ordinal = 0; ordinal < count; ordinal++) {
    kjit_device_info device = {.struct_size = sizeof device};
    if (kjit_device_get_info(runtime, (int32_t)ordinal, &device, NULL) == KJIT_OK)
      json_array_append_new(devices, device_json(runtime, &device));
  }
  return devices;
}

static json_t *driver_json(kjit_runtime *runtime, const kjit_doctor_report *report) {
  if (report->driver_status != KJIT_OK)
    return json_pack("{s:b, s:o, s:[]}", "found", 0, "message", json_text(report->driver_message), "devices");
  return json_pack("{s:b, s:i, s:o, s:o}", "found", 1, "version", report->driver_version, "path",
                   json_text(report->driver_path), "devices", devices_json(runtime, report->device_count));
}

static json_t *cache_json(const kjit_doctor_report *report) {
  return json_pack("{s:b, s:s, s:o, s:o}", "usable", report->cache_status == KJIT_OK, "mode",
                   cache_mode_name(report->cache_mode), "path", json_text(report->cache_path), "message",
                   json_text(report->cache_message));
}

/* Which kernels the planner takes from measurements on this card. */
static void print_tuned(kjit_runtime *runtime, const kjit_device_info *device) {
  kjit_tune_info info = {.struct_size = sizeof info};
  if (kjit_tune_get_info(runtime, NULL, device, NULL, &info, NULL) != KJIT_OK) return;
  const unsigned rows = info.user_rows + info.site_rows + info.shipped_rows;
  printf("tuned %d   ", device->ordinal);
  if (!info.enabled)
    printf("switched off\n");
  else if (rows == 0)
    printf("no rows%s: the rules choose; 'kjit tune' measures\n", info.ignored_rows > 0 ? " for these kernels" : "");
  else
    printf("%u rows of %s (user %u, site %u, shipped %u), %u ignored; %s\n", rows, info.date, info.user_rows,
           info.site_rows, info.shipped_rows, info.ignored_rows, info.path);
}

static void print_devices(kjit_runtime *runtime, uint32_t count) {
  for (uint32_t ordinal = 0; ordinal < count; ordinal++) {
    kjit_device_info device = {.struct_size = sizeof device};
    kjit_error error = {0};
    if (kjit_device_get_info(runtime, (int32_t)ordinal, &device, &error) != KJIT_OK) {
      printf("GPU %u     not usable: %s\n", ordinal, error.message);
      continue;
    }
    printf("GPU %u     %s, %s, %u multiprocessors, %.1f GiB, %u bytes of shared memory per block\n", ordinal,
           device.name, device.arch_specific, device.multiprocessors, (double)device.memory_bytes / (1 << 30),
           device.max_shared_per_block);
    print_tuned(runtime, &device);
  }
}

static void print_parts(kjit_runtime *runtime, const kjit_doctor_report *report) {
  printf("kjit      %s\n", kjit_version());
  if (report->nvrtc_status == KJIT_OK)
    printf("NVRTC     %d.%d, %s\n", report->nvrtc_major, report->nvrtc_minor, report->nvrtc_path);
  else
    printf("NVRTC     not found: %s\n", report->nvrtc_message);
  if (report->driver_status == KJIT_OK)
    printf("driver    CUDA %d.%d, %s\n", report->driver_version / 1000, report->driver_version % 1000 / 10,
           report->driver_path);
  else
    printf("driver    not usable: %s\n", report->driver_message);
  print_devices(runtime, report->device_count);
  printf("cache     %s", report->cache_path[0] != '\0' ? report->cache_path : "none");
  printf(" (%s)%s%s\n", cache_mode_name(report->cache_mode), report->cache_message[0] != '\0' ? ": " : "",
         report->cache_message);
}

static void print_abilities(const kjit_doctor_report *report) {
  const bool compiles = report->nvrtc_status == KJIT_OK;
  const bool runs = report->driver_status == KJIT_OK && report->device_count > 0;
  printf("\ncompile   %s\n",
         compiles ? "yes, for every architecture that this NVRTC knows" : "no: only what the cache holds can be used");
  printf("run       %s\n", runs ? "yes" : "no: kernels can be compiled and cached here for machines that have a GPU");
  printf("keep      %s\n", report->cache_status == KJIT_OK && report->cache_mode == KJIT_CACHE_RW
                               ? "yes, from one process to the next"
                               : "no: what is compiled lives as long as its process");
}

static int doctor_report(kjit_runtime *runtime, bool json) {
  kjit_doctor_report report = {.struct_size = sizeof report};
  kjit_error error = {0};
  if (kjit_doctor(runtime, &report, &error) != KJIT_OK) return report_error(&error);
  if (json)
    return print_json(json_pack("{s:s, s:o, s:o, s:o}", "version", kjit_version(), "nvrtc", nvrtc_json(&report),
                                "driver", driver_json(runtime, &report), "cache", cache_json(&report)));
  print_parts(runtime, &report);
  print_abilities(&report);
  return print_text("");
}

static int doctor_run(int argc, char **argv) {
  bool json = false;
  const struct option options[] = {{.kind = OPTION_FLAG, .name = "--json", .target = &json}, {.kind = OPTION_END}};
  const int code = options_read(argc, argv, options, NULL, usage);
  if (code >= 0) return code;
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  if (open_runtime(&runtime, &error) != KJIT_OK) return report_error(&error);
  const int result = doctor_report(runtime, json);
  kjit_runtime_destroy(runtime);
  return result;
}

const struct command command_doctor = {
    .name = "doctor", .summary = "what this machine has, what works, what to do", .run = doctor_run};
