    .section .rodata
    .balign 4096
    .global carrel_guest_begin
    .global carrel_guest_end
carrel_guest_begin:
    .incbin GUEST_PROGRAM
carrel_guest_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
