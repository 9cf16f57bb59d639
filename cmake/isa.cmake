# One source file, one instruction set: the file's suffix decides its flags, common code stays at the x86-64 baseline.
# g++ 12 knows no -march=znver4, so the features are named one by one.
set(PAGEFOLD_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(PAGEFOLD_FLAGS_avx512 ${PAGEFOLD_FLAGS_avx2}
  -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mavx512vnni -mavx512bf16 -mavx512vbmi
  # g++ 12 warns about its own header's "undefined" operands (GCC bug 105593).
  -Wno-uninitialized -Wno-maybe-uninitialized)

# clang takes minutes to instrument the unrolled loops of the vector code, which no fuzz target reaches. The asan preset, built
# by g++, checks them.
if(PAGEFOLD_FUZZ)
  foreach(isa avx2 avx512)
    list(APPEND PAGEFOLD_FLAGS_${isa} -fno-sanitize=all)
  endforeach()
endif()

function(pagefold_set_isa_flags)
  foreach(source ${ARGN})
    foreach(isa avx2 avx512)
      if(source MATCHES "_${isa}\\.cpp$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${PAGEFOLD_FLAGS_${isa}}")
      endif()
    endforeach()
  endforeach()
endfunction()
