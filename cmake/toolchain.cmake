set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Fused multiply-adds are written where they are wanted: the compiler must not contract on its own, or bits would depend on
# its mood.
add_compile_options(-Wall -Wextra -Werror -ffp-contract=off)

# __FILE__ and debug information name files from the root of the repository: messages read the same everywhere, and a checkout in
# another folder builds the same bytes.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)

set(LOCKSTEP_SANITIZER "" CACHE STRING "address (with undefined) or thread")
if(LOCKSTEP_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(LOCKSTEP_SANITIZER STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
