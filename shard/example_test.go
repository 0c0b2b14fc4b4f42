package shard_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sedabus/seda/shard"
)

// Sums by customer, kept by shard and without locks.
func Example() {
	type order struct {
		customer string
		amount   int
	}
	sums := make([]map[string]int, 4)
	for i := range sums {
		sums[i] = map[string]int{}
	}
	rt, err := shard.New(shard.Config[order]{
		Shards: len(sums),
		Handle: func(s *shard.Shard[order], o *order) { sums[s.Index()][o.customer] += o.amount },
	})
	if err != nil {
		log.Fatal(err)
	}
	p := rt.Producer()
	for i := range 100 {
		o := order{customer: []string{"ada", "bob"}[i%2], amount: i}
		if err := p.Push(context.Background(), shard.Hash(o.customer), o); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := rt.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, c := range []string{"ada", "bob"} {
		fmt.Println(c, sums[rt.Layout().Of(shard.Hash(c))][c])
	}
	// Output:
	// ada 2450
	// bob 2500
}
