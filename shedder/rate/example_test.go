package rate_test

import (
	"fmt"
	"time"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/rate"
)

// A stage that lets in 100 events a second, and two a second of each sender.
func Example() {
	p, err := rate.New(rate.Config{Rate: 100, By: rate.BySender, EachRate: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		v := p.Admit(&shedder.Request{Now: time.Second, Sender: "ann"})
		fmt.Println(v.Action, v.Rule, v.RetryAfter)
	}
	v := p.Admit(&shedder.Request{Now: time.Second, Sender: "bob"})
	fmt.Println(v.Action)
	// Output:
	// admit  0s
	// admit  0s
	// refuse rate_sender 500ms
	// admit
}
