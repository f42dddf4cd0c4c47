    .section .rodata
    .balign 16
    .global carrel_weak_guest_begin
    .global carrel_weak_guest_end
carrel_weak_guest_begin:
    .incbin GUEST_PROGRAM
carrel_weak_guest_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
