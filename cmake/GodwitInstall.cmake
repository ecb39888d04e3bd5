# `cmake --install` puts the program, the public headers, the libraries and a CMake package in place:
#
#   find_package(godwit REQUIRED)
#   target_link_libraries(mine PRIVATE godwit::godwit)
include(CMakePackageConfigHelpers)

add_library(godwit_api INTERFACE)
set_target_properties(godwit_api PROPERTIES EXPORT_NAME godwit)
target_link_libraries(godwit_api INTERFACE godwit_engine tl::expected)
target_compile_features(godwit_api INTERFACE cxx_std_20)
target_include_directories(godwit_api INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

get_property(libraries GLOBAL PROPERTY GODWIT_LIBRARIES)
install(TARGETS godwit_api ${libraries} EXPORT godwitTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/godwit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/godwit)
install(EXPORT godwitTargets NAMESPACE godwit:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/godwitConfig.cmake.in ${PROJECT_BINARY_DIR}/godwitConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/godwitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/godwitConfig.cmake ${PROJECT_BINARY_DIR}/godwitConfigVersion.cmake
        DESTINATION ${package_dir})
