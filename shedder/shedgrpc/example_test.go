package shedgrpc_test

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/shedgrpc"
)

// A server that works on 32 calls at once. Health checks always get through.
func Example() {
	s, err := shedder.New(shedder.Config{Concurrency: 32})
	if err != nil {
		fmt.Println(err)
		return
	}
	i, err := shedgrpc.New(shedgrpc.Config{
		Shedder: s,
		Skip:    func(_ context.Context, method string) bool { return strings.HasPrefix(method, "/grpc.health.") },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(i.Unary), grpc.ChainStreamInterceptor(i.Stream))
	defer srv.Stop()
	fmt.Println("ready")
	// Output: ready
}
