// Writes and reads the image that the stand-in NVRTC makes and the stand-in driver loads (image.h): an ELF file with
// the sections of a cubin that kjit reads, and the host's shared object in one more section.
#include "image.h"

#include <elf.h>

#include <cstring>
#include <string_view>

namespace emulator {
namespace {

constexpr uint16_t kMachineCuda = 190; // EM_CUDA
constexpr char kLibrarySection[] = ".kjit.emulator";
constexpr char kArchSection[] = ".kjit.arch";
constexpr char kKernelSection[] = ".kjit.kernels";
constexpr size_t kMostSections = 1000;

// Attributes of .nv.info.<kernel>, as src/jit/cubin/cubin.c reads them.
constexpr uint8_t kSizedValue = 4, kMaxThreads = 0x05, kParameter = 0x17;

void append_u32(std::string *out, uint32_t value) {
  out->append(reinterpret_cast<const char *>(&value), sizeof value);
}

void append_record(std::string *out, uint8_t attribute, uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t bytes = 12;
  append_u32(out, kSizedValue | static_cast<uint32_t>(attribute) << 8 | bytes << 16);
  append_u32(out, a);
  append_u32(out, b);
  append_u32(out, c);
}

std::string describe(const KernelRecord &kernel) {
  std::string info;
  if (kernel.max_threads) append_record(&info, kMaxThreads, kernel.max_threads, 1, 1);
  for (uint32_t i = 0, offset = 0; i < kernel.parameter_count; offset += kernel.parameter_bytes[i++])
    append_record(&info, kParameter, 0, i | offset << 16, kernel.parameter_bytes[i] << 18);
  return info;
}

struct Section {
  std::string name, content;
};

std::string write_elf(const std::vector<Section> &sections) {
  std::string names(1, '\0'), body(sizeof(Elf64_Ehdr), '\0');
  std::vector<Elf64_Shdr> headers(1);
  const auto add = [&](const std::string &name, uint32_t type, const std::string &content) {
    body.resize((body.size() + 15) & ~static_cast<size_t>(15));
    Elf64_Shdr header = {};
    header.sh_name = static_cast<uint32_t>(names.size() - name.size() - 1);
    header.sh_type = type;
    header.sh_offset = body.size();
    header.sh_size = content.size();
    header.sh_addralign = 16;
    headers.push_back(header);
    body += content;
  };
  for (const Section &section : sections) {
    names.append(section.name).push_back('\0');
    add(section.name, SHT_PROGBITS, section.content);
  }
  names.append(".shstrtab").push_back('\0');
  add(".shstrtab", SHT_STRTAB, names);
  body.resize((body.size() + 15) & ~static_cast<size_t>(15));

  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = kMachineCuda;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shoff = body.size();
  header.e_shnum = static_cast<uint16_t>(headers.size());
  header.e_shstrndx = static_cast<uint16_t>(headers.size() - 1);
  memcpy(body.data(), &header, sizeof header);
  body.append(reinterpret_cast<const char *>(headers.data()), headers.size() * sizeof(Elf64_Shdr));
  return body;
}

bool read_header(std::string_view elf, Elf64_Ehdr *header) {
  if (elf.size() < sizeof *header) return false;
  memcpy(header, elf.data(), sizeof *header);
  return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64 &&
         header->e_shentsize == sizeof(Elf64_Shdr);
}

bool read_section(std::string_view elf, const Elf64_Ehdr &header, size_t index, Elf64_Shdr *section) {
  const uint64_t at = header.e_shoff + index * sizeof *section;
  if (header.e_shoff > elf.size() || at > elf.size() || elf.size() - at < sizeof *section) return false;
  memcpy(section, elf.data() + at, sizeof *section);
  return section->sh_type == SHT_NOBITS ||
         (section->sh_offset <= elf.size() && section->sh_size <= elf.size() - section->sh_offset);
}

// The content of a section; empty when there is none of that name.
std::string_view find_section(std::string_view elf, std::string_view name) {
  Elf64_Ehdr header;
  Elf64_Shdr names, section;
  if (!read_header(elf, &header) || !read_section(elf, header, header.e_shstrndx, &names)) return {};
  const std::string_view table = elf.substr(names.sh_offset, names.sh_size);
  for (size_t i = 0; i < header.e_shnum; i++) {
    if (!read_section(elf, header, i, &section) || section.sh_name >= table.size()) return {};
    const std::string_view tail = table.substr(section.sh_name);
    if (section.sh_type != SHT_NOBITS && tail.substr(0, tail.find('\0')) == name)
      return elf.substr(section.sh_offset, section.sh_size);
  }
  return {};
}

} // namespace

std::string write_image(const Image &image) {
  std::vector<Section> sections;
  for (const KernelRecord &kernel : image.kernels) {
    const std::string name = kernel.name;
    sections.push_back({".text." + name, "runs on the host"});
    sections.push_back({".nv.info." + name, describe(kernel)});
  }
  const char *const kernels = reinterpret_cast<const char *>(image.kernels.data());
  sections.push_back({kKernelSection, {kernels, image.kernels.size() * sizeof(KernelRecord)}});
  sections.push_back({kArchSection, image.arch});
  sections.push_back({kLibrarySection, image.library});
  return write_elf(sections);
}

bool read_image(const void *bytes, Image *image) {
  Elf64_Ehdr header;
  if (!read_header({static_cast<const char *>(bytes), sizeof header}, &header)) return false;
  if (header.e_machine != kMachineCuda || header.e_shnum > kMostSections) return false;
  const std::string_view elf = {static_cast<const char *>(bytes), header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr)};
  image->arch = find_section(elf, kArchSection);
  image->library = find_section(elf, kLibrarySection);
  const std::string_view kernels = find_section(elf, kKernelSection);
  image->kernels.resize(kernels.size() / sizeof(KernelRecord));
  memcpy(image->kernels.data(), kernels.data(), image->kernels.size() * sizeof(KernelRecord));
  return !image->arch.empty() && !image->library.empty() && !image->kernels.empty();
}

} // namespace emulator
