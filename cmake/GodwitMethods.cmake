# One method, one file: a table of all rows that the files of a folder export.
#
#   godwit_method_table(kv FOLDER codecs ROW KvCodecRow PREFIX kv_codec HEADER kv/codec.h)
#
# Each codecs/NAME.cpp defines `extern const KvCodecRow kv_codec_NAME`; the generated source defines
# `std::span<const KvCodecRow* const> all_kv_codecs()` (FUNCTION gives another name), sorted by file name, and joins godwit_kv. A row that registered
# itself would be dropped by the linker with its object file, since nothing in a static library refers to it.
function(godwit_method_table library)
  cmake_parse_arguments(ARG "" "FOLDER;ROW;PREFIX;HEADER;FUNCTION" "" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_FOLDER}/*.cpp)
  list(FILTER files EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
  list(SORT files)
  list(LENGTH files count)
  if(NOT ARG_FUNCTION)
    set(ARG_FUNCTION all_${ARG_PREFIX}s)
  endif()

  set(declarations "")
  set(rows "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    string(APPEND declarations "extern const ${ARG_ROW} ${ARG_PREFIX}_${name};\n")
    string(APPEND rows "      &${ARG_PREFIX}_${name},\n")
  endforeach()
  if(count EQUAL 0)
    set(body "  return {};\n")
  else()
    set(body "  static constexpr const ${ARG_ROW}* rows[] = {\n${rows}  };\n  return rows;\n")
  endif()

  set(source ${CMAKE_CURRENT_BINARY_DIR}/${ARG_PREFIX}_table.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${ARG_HEADER}\"

namespace godwit {

${declarations}
std::span<const ${ARG_ROW}* const> ${ARG_FUNCTION}() {
${body}}

}  // namespace godwit
" @ONLY)
  target_sources(godwit_${library} PRIVATE ${source})
endfunction()
