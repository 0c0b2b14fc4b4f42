package main

import (
	"bytes"
	"context"
	"io"
)

const overloadJob = "overload"

func simulateAll(in func(func()), out io.Writer) int { return 0 }

func printOverload(ctx context.Context, doc *bytes.Buffer) error { return nil }
