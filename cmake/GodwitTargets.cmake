# How every folder of src/ becomes a target: one folder, one library, one test program.
#
#   godwit_library(io DEPS tensor base LIBS nlohmann_json::nlohmann_json)
#
# makes `godwit_io` from the folder's *.cpp (subfolders included), `io_test` from its *_test.cpp and, with GODWIT_FUZZ,
# one program per *_fuzz.cpp. NOT_INSTALLED: only the program uses it, so the installed package has no need of it.
# tools/check_layers.py reads the DEPS to check the includes.

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(godwit_flags INTERFACE)
target_compile_features(godwit_flags INTERFACE cxx_std_20)
# Contraction off: a row's result may not depend on what the compiler chose to fuse. Kernels ask for FMA by name.
target_compile_options(godwit_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -ffp-contract=off
                                              -fno-math-errno)
target_include_directories(godwit_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
if(GODWIT_SANITIZE)
  target_compile_options(godwit_flags INTERFACE -fsanitize=${GODWIT_SANITIZE} -fno-sanitize-recover=all
                                                -fno-omit-frame-pointer)
  target_link_options(godwit_flags INTERFACE -fsanitize=${GODWIT_SANITIZE})
  if(GODWIT_SANITIZE MATCHES thread)
    # TSan knows no fences, and GCC refuses them with it. Asio's are for memory that devices share.
    target_compile_definitions(godwit_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
if(GODWIT_FUZZ)
  target_compile_options(godwit_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  target_link_options(godwit_flags INTERFACE -fsanitize=address,undefined)
endif()

# A library that comes by pkg-config: the target PkgConfig::NAME here, and again for users of the installed package.
macro(godwit_pkg_config name module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
  string(APPEND GODWIT_PKGCONFIG_DEPENDENCIES "pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})\n")
endmacro()

function(godwit_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT GODWIT_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/main.cpp)
  list(TRANSFORM ARG_DEPS PREPEND godwit_)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} godwit_flags GTest::gtest)
  target_compile_definitions(${name} PRIVATE GODWIT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(GODWIT_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 6")  # TSan's price, and a busy machine's
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

function(godwit_library name)
  cmake_parse_arguments(ARG "NOT_INSTALLED" "" "DEPS;LIBS;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  list(TRANSFORM ARG_DEPS PREPEND godwit_ OUTPUT_VARIABLE dep_targets)

  add_library(godwit_${name} STATIC ${sources})
  target_link_libraries(godwit_${name} PUBLIC ${dep_targets} ${ARG_LIBS} PRIVATE $<BUILD_INTERFACE:godwit_flags>)
  target_include_directories(godwit_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  if(NOT ARG_NOT_INSTALLED)
    set_property(GLOBAL APPEND PROPERTY GODWIT_LIBRARIES godwit_${name})
  endif()
  if(tests)
    godwit_test(${name}_test SOURCES ${tests} DEPS ${name})
  endif()
  if(GODWIT_FUZZ)
    foreach(file ${fuzzers})
      get_filename_component(fuzzer ${file} NAME_WE)
      add_executable(${fuzzer} ${file})
      target_link_libraries(${fuzzer} PRIVATE godwit_${name} godwit_flags -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()
