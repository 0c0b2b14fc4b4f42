package credit_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sedabus/seda/credit"
)

// A producer asks for room before it makes work, and so never finds the queue
// full.
func ExampleGate() {
	const workers = 2
	g, err := credit.NewGate(credit.GateConfig{Config: credit.Config{Window: 4}, Size: credit.Sizing{Workers: workers}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	p, err := g.Producer(credit.AccountConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	queue := make(chan int, 4) // as large as the window
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range queue {
				began := time.Now()
				g.Done(1, time.Since(began))
			}
		})
	}
	full := 0
	for i := range 1000 {
		if err := p.Use(context.Background()); err != nil {
			fmt.Println(err)
			break
		}
		select {
		case queue <- i:
		default:
			full++
		}
	}
	close(queue)
	wg.Wait()
	fmt.Println("found it full:", full)
	fmt.Println("spent:", g.State().Spent)
	// Output:
	// found it full: 0
	// spent: 1000
}

// With a credit in hand, TryUse cannot fail for want of one; without, Blocked
// says why.
func ExampleProducer_Blocked() {
	g, _ := credit.NewGate(credit.GateConfig{Config: credit.Config{Window: 2}})
	p, _ := g.Producer(credit.AccountConfig{})
	fmt.Println(p.TryAcquire(2), p.Credits())
	fmt.Println(p.TryUse(), p.TryUse(), p.TryUse())
	why, blocked := p.Blocked()
	fmt.Println(blocked, why.Reason)
	g.Done(1, time.Millisecond)
	_, blocked = p.Blocked()
	fmt.Println(blocked)
	// Output:
	// <nil> 2
	// <nil> <nil> credit: no credit
	// true no_credit
	// false
}

// The ledger alone, for an owner with a lock and a clock of its own.
func ExampleLedger() {
	l, _ := credit.NewLedger(credit.Config{Window: 10})
	a, _ := l.Open(credit.AccountConfig{})
	b, _ := l.Open(credit.AccountConfig{})
	l.Want(a, 8)
	l.Want(b, 1)
	now := time.Duration(0)
	for next := l.Next(); next != nil && next.Wanted() <= l.Free(); next = l.Next() {
		l.Grant(next, next.Wanted(), now)
	}
	l.Spend(a, 8)
	fmt.Println(a.Unspent(), b.Unspent(), l.Free())
	l.Release(8) // the work has ended
	fmt.Println(l.Free())
	lapsed, _ := l.Expire(now+2*time.Second, nil) // b has not used its one
	fmt.Println(lapsed, l.Free())
	// Output:
	// 0 1 1
	// 9
	// 1 10
}
