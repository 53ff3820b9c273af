# lockstep_library(NAME SOURCES a.cc ... [DEPS other rooms and libraries seen in headers] [PRIVATE_DEPS third-party, .cc only])
#
# One static library per folder. Includes are always written from the root of the repository.
function(lockstep_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# lockstep_test(NAME SOURCES a_test.cc ... DEPS libraries)
#
# One test program per folder; ctest sees every TEST of it by name.
function(lockstep_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;PRIVATE_DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_PRIVATE_DEPS} lockstep_testing)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}." PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()
