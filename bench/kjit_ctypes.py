"""kjit's C API for the benchmarks: as much as they need, through ctypes. The config struct comes from the library's own
field table."""

import ctypes as C
import os

FP16, BF16 = 5, 15  # kjit_dtype


class Error(C.Structure):
    _fields_ = [
        ("status", C.c_int32),
        ("cause_domain", C.c_int32),
        ("cause", C.c_int64),
        ("message", C.c_char * 496),
    ]


class Tensor(C.Structure):
    _fields_ = [
        ("data", C.c_void_p),
        ("dtype", C.c_int32),
        ("device", C.c_int32),
        ("rank", C.c_uint32),
        ("reserved", C.c_uint32),
        ("shape", C.c_int64 * 4),
        ("stride", C.c_int64 * 4),
    ]


class AttentionArgs(C.Structure):
    _fields_ = [
        ("struct_size", C.c_size_t),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("o", Tensor),
        ("lse", Tensor),
        ("scale", C.c_float),
        ("reserved", C.c_uint32),
    ]


class FieldInfo(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("kind", C.c_char_p),
        ("token", C.c_char_p),
        ("text", C.c_char_p),
        ("offset", C.c_uint32),
    ]


class KjitError(RuntimeError):
    pass


def _config_type(library):
    """The config struct, field by field as the library lists them."""
    library.kjit_flash_field.restype = C.POINTER(FieldInfo)
    library.kjit_flash_field.argtypes = [C.c_size_t]
    fields = []
    while row := library.kjit_flash_field(len(fields)):
        name, offset = row.contents.name.decode(), row.contents.offset
        if offset != 4 * len(fields):
            raise KjitError(f"field {name} is at {offset}, not at {4 * len(fields)}")
        fields.append((name, C.c_int32))
    return type("FlashConfig", (C.Structure,), {"_fields_": fields})


def default_library():
    """$KJIT_LIBRARY, or libkjit.so beside this file, in ../lib or in the build folders."""
    here = os.path.dirname(os.path.abspath(__file__))
    candidates = [os.environ.get("KJIT_LIBRARY", "")]
    candidates += [os.path.join(here, folder, "libkjit.so") for folder in (".", "../lib", "..", "../build", "../build/release")]
    return next((path for path in candidates if path and os.path.exists(path)), "libkjit.so")


class Kjit:
    """One runtime."""

    def __init__(self, path=None):
        self.library = C.CDLL(path or default_library())
        self.Config = _config_type(self.library)
        config, pointer = C.POINTER(self.Config), C.POINTER(C.c_void_p)
        error, text = C.POINTER(Error), C.c_char_p
        for name, arguments in {
            "kjit_runtime_create": [pointer, C.c_void_p, error],
            "kjit_flash_config_parse": [text, config, error],
            "kjit_flash_config_print": [config, C.c_uint32, text, C.c_size_t, error],
            "kjit_flash_config_set": [text, config, C.c_size_t, C.POINTER(C.c_size_t), error],
            "kjit_flash_build": [C.c_void_p, config, text, C.c_uint32, pointer, error],
            "kjit_flash_plan_create": [C.c_void_p, config, C.POINTER(AttentionArgs), pointer, error],
            "kjit_flash_plan_run": [C.c_void_p, C.c_void_p, error],
        }.items():
            function = getattr(self.library, name)
            function.argtypes, function.restype = arguments, C.c_int
        for name in ("kjit_artifact_release", "kjit_flash_plan_destroy", "kjit_runtime_destroy"):
            function = getattr(self.library, name)
            function.argtypes, function.restype = [C.c_void_p], None
        self.runtime, self.plans = C.c_void_p(), []
        self._call("kjit_runtime_create", C.byref(self.runtime), None)

    def _call(self, name, *arguments):
        error = Error()
        if getattr(self.library, name)(*arguments, C.byref(error)) != 0:
            raise KjitError(error.message.decode())

    def parse(self, text):
        config = self.Config()
        self._call("kjit_flash_config_parse", text.encode(), C.byref(config))
        return config

    def print(self, config):
        text = C.create_string_buffer(512)
        self._call("kjit_flash_config_print", C.byref(config), 0, text, len(text))
        return text.value.decode()

    def set(self, name):
        count = C.c_size_t()
        self._call("kjit_flash_config_set", name.encode(), None, 0, C.byref(count))
        configs = (self.Config * count.value)()
        self._call("kjit_flash_config_set", name.encode(), configs, count, C.byref(count))
        return list(configs)

    def build(self, config, arch):
        """Compile, or find in the cache. Other Python threads run meanwhile."""
        artifact = C.c_void_p()
        self._call("kjit_flash_build", self.runtime, C.byref(config), arch.encode(), 0, C.byref(artifact))
        self.library.kjit_artifact_release(artifact)

    def plan(self, config, args):
        plan = C.c_void_p()
        self._call("kjit_flash_plan_create", self.runtime, C.byref(config), C.byref(args), C.byref(plan))
        self.plans.append(plan)
        return plan

    def run(self, plan, stream):
        self._call("kjit_flash_plan_run", plan, stream)

    def close(self):
        """End the plans, then the runtime. What they launched must be over."""
        for plan in self.plans:
            self.library.kjit_flash_plan_destroy(plan)
        self.library.kjit_runtime_destroy(self.runtime)


def tensor(data, dtype, device, shape, stride):
    return Tensor(data, dtype, device, len(shape), 0, (C.c_int64 * 4)(*shape), (C.c_int64 * 4)(*stride))


def attention_args(q, k, v, o):
    return AttentionArgs(C.sizeof(AttentionArgs), q, k, v, o, Tensor(), 0.0, 0)
