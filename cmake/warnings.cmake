# One interface target every module links: warnings, sanitizers, and the options that the numbers depend on.
add_library(pagefold_options INTERFACE)
target_compile_options(pagefold_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
  # Results must not depend on which ISA file a statement sits in: products and sums are fused only where we write it.
  -ffp-contract=off)
target_include_directories(pagefold_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)

if(PAGEFOLD_SANITIZE)
  target_compile_options(pagefold_options INTERFACE -fsanitize=${PAGEFOLD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(pagefold_options INTERFACE -fsanitize=${PAGEFOLD_SANITIZE})
  target_compile_definitions(pagefold_options INTERFACE PAGEFOLD_KEEP_LOOPS)  # see kernels/packed_layout.h
  if(PAGEFOLD_SANITIZE MATCHES "undefined")
    # Checks of every pointer: the address sanitizer and the processor see most of these faults too, and they are a third of the
    # compile time. What is left: overflow, shifts, bounds, conversions, enums, unreachable code.
    target_compile_options(pagefold_options INTERFACE
      -fno-sanitize=null,alignment,object-size,vptr,nonnull-attribute,returns-nonnull-attribute)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Clang before 17 cannot emit this check for a coroutine ("Cannot represent a difference across sections").
    target_compile_options(pagefold_options INTERFACE -fno-sanitize=function)
  endif()
endif()
if(PAGEFOLD_FUZZ)
  # Coverage of the code under test guides the fuzzer; only the target's own file gets its main().
  target_compile_options(pagefold_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
