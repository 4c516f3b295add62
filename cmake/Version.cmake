# The library pc_version (pcrt/version.h): the commit that is built, in one source file of a line, which the build writes
# again where HEAD has moved and nothing else includes. -DPC_VERSION=TEXT says it where there is no git.
if(CMAKE_SCRIPT_MODE_FILE) # cmake -DROOT=DIR -DVERSION=TEXT -DOUTPUT=FILE -P Version.cmake
  if(NOT VERSION)
    execute_process(COMMAND git -C ${ROOT} describe --tags --always --abbrev=10
      OUTPUT_VARIABLE VERSION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(NOT VERSION)
    set(VERSION unknown)
  endif()
  file(WRITE ${OUTPUT} "#include \"pcrt/version.h\"\nconst char pcrt_version[] = \"${VERSION}\";\n")
  return()
endif()

include_guard(GLOBAL)
set(PC_VERSION "" CACHE STRING "What --version says; empty: the commit, or unknown outside of git")
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
execute_process(COMMAND git -C ${root} rev-parse --git-path logs/HEAD
  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
get_filename_component(head "${head}" ABSOLUTE BASE_DIR ${root})
if(NOT EXISTS "${head}" OR IS_DIRECTORY "${head}")
  set(head "")
endif()
set(source ${CMAKE_BINARY_DIR}/Version.cpp)
add_custom_command(OUTPUT ${source}
  COMMAND ${CMAKE_COMMAND} -DROOT=${root} "-DVERSION=${PC_VERSION}" -DOUTPUT=${source} -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${CMAKE_CURRENT_LIST_FILE} ${head} COMMENT "Naming the version" VERBATIM)
add_library(pc_version STATIC ${source})
target_include_directories(pc_version PUBLIC ${root}/runtime/include)
set_target_properties(pc_version PROPERTIES POSITION_INDEPENDENT_CODE ON ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
