# SPDX-License-Identifier: Apache-2.0
# Packages of a build. cpack -G DEB makes libtwill0, libtwill-dev, twill-tools, libtwill-mpi, and one for each MPI.
# cpack -G TGZ makes one archive. For a distribution's folders configure with -DCMAKE_INSTALL_PREFIX=/usr.
set(CPACK_PACKAGE_VENDOR "The twill authors")
set(CPACK_PACKAGE_CONTACT "The twill authors <twill@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_GENERATOR TGZ)
set(CPACK_STRIP_FILES ON)
set(mpi_components "")
if(TWILL_BUILD_MPI)
    set(mpi_components ${TWILL_MPI_VARIANTS} abi)
    if(TWILL_MPI_DETECT)
        list(APPEND mpi_components mpi)
    endif()
endif()
set(CPACK_COMPONENTS_ALL runtime development tools ${mpi_components})

set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libtwill${PROJECT_VERSION_MAJOR})
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Collectives for training codes on CPUs: the shared library")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libfabric1, libmemkind0, libpmix2") # these are opened at run time

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtwill-dev)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Collectives for training codes on CPUs: header, manual and examples")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS runtime)

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME twill-tools)
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "Collectives for training codes on CPUs: launcher and benchmarks")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_COMPONENT_TOOLS_DEPENDS runtime)

foreach(variant ${mpi_components})
    string(TOUPPER ${variant} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME libtwill-mpi-${variant})
    set(CPACK_COMPONENT_${upper}_DESCRIPTION "Collectives of MPI programs by twill, for ${variant}")
    set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION libs)
    set(CPACK_COMPONENT_${upper}_DEPENDS runtime)
endforeach()
set(CPACK_DEBIAN_MPI_PACKAGE_NAME libtwill-mpi)
set(CPACK_COMPONENT_MPI_DESCRIPTION "Collectives of MPI programs by twill, for the MPI that is found")
set(CPACK_COMPONENT_ABI_DESCRIPTION "Collectives of MPI programs by twill, for the standard ABI of MPI 5")

# share/doc/PACKAGE/copyright, only in packages.
foreach(component ${CPACK_COMPONENTS_ALL})
    string(TOUPPER ${component} upper)
    set(files "")
    if(component STREQUAL development)
        set(files "
Files: examples/data/*
Copyright: W. H. Wolberg, W. N. Street, O. L. Mangasarian; E. Alpaydin, C. Kaynak
License: CC-BY-4.0
 https://creativecommons.org/licenses/by/4.0/legalcode; changes and sources are
 in examples/README.md.
")
    endif()
    configure_file(lib/copyright.in lib/copyright-${component} @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/lib/copyright-${component} COMPONENT ${component} EXCLUDE_FROM_ALL RENAME copyright
            DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
endforeach()
include(CPack)
