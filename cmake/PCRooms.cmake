# pc_precompile(target [KERNELS]): a precompiled header of the project, built once and reused:
# what nearly every file needs, or with KERNELS also the dialects of generated code.
function(pc_precompile target)
  set(maker PCIR)
  set(header pch.h)
  if("KERNELS" IN_LIST ARGN)
    set(maker PCCodegen)
    set(header pch-kernels.h)
  endif()
  if(target STREQUAL maker)
    set_target_properties(${target} PROPERTIES PCH_INSTANTIATE_TEMPLATES ON)
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/${header})
  else()
    target_precompile_headers(${target} REUSE_FROM ${maker})
    target_compile_options(${target} PRIVATE -fPIC) # as the header was; of executables CMake makes -fPIE
  endif()
endfunction()

# pc_test_program(name sources...): a program that tests of lit run, with the compiler's flags and precompiled header.
function(pc_test_program name)
  add_executable(${name} ${ARGN})
  llvm_update_compile_flags(${name})
  pc_precompile(${name})
  add_dependencies(check-pc ${name})
endfunction()

# pc_room(Name sources... LINK rooms... MLIR upstream-libraries... [KERNELS]): the library PC<Name> of one room; without
# sources, of those in its folder and the folders in it. KERNELS: it writes generated code.
function(pc_room name)
  cmake_parse_arguments(ARG "KERNELS" "" "LINK;MLIR" ${ARGN})
  if(NOT ARG_UNPARSED_ARGUMENTS)
    file(GLOB ARG_UNPARSED_ARGUMENTS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.cpp */*.cpp */*/*.cpp)
  endif()
  add_mlir_library(PC${name} ${ARG_UNPARSED_ARGUMENTS}
    DEPENDS PCIRIncGen ${PC_PASS_TARGETS}
    EXCLUDE_FROM_LIBMLIR DISABLE_INSTALL)
  foreach(room IR Support ${ARG_LINK})
    if(NOT room STREQUAL name)
      target_link_libraries(PC${name} PUBLIC PC${room})
    endif()
  endforeach()
  mlir_target_link_libraries(PC${name} PUBLIC MLIRIR MLIRPass ${ARG_MLIR})
  if(ARG_KERNELS)
    pc_precompile(PC${name} KERNELS)
  else()
    pc_precompile(PC${name})
  endif()
endfunction()

# pc_room_passes(Name): Passes.td of a room -> Passes.h.inc and documentation.
function(pc_room_passes name)
  set(LLVM_TARGET_DEFINITIONS Passes.td)
  mlir_tablegen(Passes.h.inc -gen-pass-decls -name ${name})
  mlir_tablegen(Passes.md -gen-pass-doc)
  add_public_tablegen_target(PC${name}PassesIncGen)
  set(PC_PASS_TARGETS ${PC_PASS_TARGETS} PC${name}PassesIncGen PARENT_SCOPE)
  set_property(GLOBAL APPEND PROPERTY PC_PASS_TARGETS PC${name}PassesIncGen)
endfunction()
