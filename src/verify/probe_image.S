    .section .rodata
    .balign 16
    .globl carrel_probe_begin
    .globl carrel_probe_end
carrel_probe_begin:
    .incbin PROBE_PROGRAM
carrel_probe_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
