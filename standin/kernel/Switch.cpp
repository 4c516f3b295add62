//===- Switch.cpp - From one fiber's stack to another's -------------------===//
// pc_switch(void **save, void *to) leaves this stack and continues where `to` was saved. Registers that a call may
// change need not be saved. (ucontext makes system calls and is thirty times slower.)
//===----------------------------------------------------------------------===//
#ifndef __x86_64__
#error "host images and their fibers are for x86-64"
#endif

asm(R"(
.text
.globl pc_switch
.hidden pc_switch
.type pc_switch, @function
pc_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size pc_switch, . - pc_switch
)");
