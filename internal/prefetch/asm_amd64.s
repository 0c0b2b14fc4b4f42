//go:build !race

#include "textflag.h"

// func Read(p uintptr)
TEXT ·Read(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET
