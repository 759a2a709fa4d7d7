/* Debian's archive of zstd also decodes the formats of before 2016: 90 KB of code for frames that kjit never writes
 * and, frame.c looking at the magic first, never unpacks. The linker takes the functions of this file in place of that
 * code. A call would be a fault, so each ends the program. */
#define LEGACY_FUNCTIONS(X)                                                                                            \
  X(ZSTDv05_createDCtx)                                                                                                \
  X(ZSTDv05_decompress_usingDict)                                                                                      \
  X(ZSTDv05_findFrameSizeInfoLegacy)                                                                                   \
  X(ZSTDv05_freeDCtx)                                                                                                  \
  X(ZSTDv05_getFrameParams)                                                                                            \
  X(ZBUFFv05_createDCtx)                                                                                               \
  X(ZBUFFv05_decompressContinue)                                                                                       \
  X(ZBUFFv05_decompressInitDictionary)                                                                                 \
  X(ZBUFFv05_freeDCtx)                                                                                                 \
  X(ZSTDv06_createDCtx)                                                                                                \
  X(ZSTDv06_decompress_usingDict)                                                                                      \
  X(ZSTDv06_findFrameSizeInfoLegacy)                                                                                   \
  X(ZSTDv06_freeDCtx)                                                                                                  \
  X(ZSTDv06_getFrameParams)                                                                                            \
  X(ZBUFFv06_createDCtx)                                                                                               \
  X(ZBUFFv06_decompressContinue)                                                                                       \
  X(ZBUFFv06_decompressInitDictionary)                                                                                 \
  X(ZBUFFv06_freeDCtx)                                                                                                 \
  X(ZSTDv07_createDCtx)                                                                                                \
  X(ZSTDv07_decompress_usingDict)                                                                                      \
  X(ZSTDv07_findFrameSizeInfoLegacy)                                                                                   \
  X(ZSTDv07_freeDCtx)                                                                                                  \
  X(ZSTDv07_getFrameParams)                                                                                            \
  X(ZBUFFv07_createDCtx)                                                                                               \
  X(ZBUFFv07_decompressContinue)                                                                                       \
  X(ZBUFFv07_decompressInitDictionary)                                                                                 \
  X(ZBUFFv07_freeDCtx)

#define LEGACY_STAND_IN(name)                                                                                          \
  void name(void);                                                                                                     \
  void name(void) {                                                                                                    \
    __builtin_trap();                                                                                                  \
  }
LEGACY_FUNCTIONS(LEGACY_STAND_IN)
