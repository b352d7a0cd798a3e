# LLVM as one library to link, quench_llvm: Debian's shared one, or, in programs with the property QUENCH_STATIC_LLVM, the
# parts of it that code for our CPUs and GPUs needs. Those run where no LLVM is installed, and start without loading 130 MB.
set(cpus X86 AArch64 ARM NVPTX)
llvm_map_components_to_libnames(parts ${cpus} Passes LTO Linker Option)
# lld and LLVM's InitializeAll... name every CPU that Debian's LLVM has code for: those that ours has none for do nothing, and
# so their code is not linked.
set(others ${LLVM_TARGETS_TO_BUILD})
list(REMOVE_ITEM others ${cpus})
set(text "/* Written by services/codegen/static_llvm.cmake. */\n")
foreach(cpu ${others})
  foreach(part TargetInfo Target TargetMC AsmPrinter AsmParser)
    string(APPEND text "void LLVMInitialize${cpu}${part}(void);\nvoid LLVMInitialize${cpu}${part}(void) {}\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT other_cpus.c CONTENT "${text}" @ONLY)
add_library(quench_llvm_static STATIC ${CMAKE_CURRENT_BINARY_DIR}/other_cpus.c)
set_target_properties(quench_llvm_static PROPERTIES UNITY_BUILD OFF)
target_link_libraries(quench_llvm_static PRIVATE quench_options INTERFACE ${parts})

add_library(quench_llvm INTERFACE)
target_link_libraries(quench_llvm INTERFACE $<IF:$<BOOL:$<TARGET_PROPERTY:QUENCH_STATIC_LLVM>>,quench_llvm_static,LLVM>)
target_link_options(quench_llvm_static INTERFACE LINKER:--gc-sections LINKER:--as-needed)
