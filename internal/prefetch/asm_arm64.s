//go:build !race

#include "textflag.h"

// func Read(p uintptr)
TEXT ·Read(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET
