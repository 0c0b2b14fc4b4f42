package windowed_test

import (
	"fmt"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/windowed"
)

// The classic rule as the policy of a shedder.
func Example() {
	p, err := windowed.New(windowed.Config{MaxWait: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := shedder.New(shedder.Config{Policy: p, Concurrency: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	promise, err := s.Allow()
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	// ... the work ...
	promise.Pass()
	fmt.Println(s.State(s.Now()).Policy)
	// Output: windowed
}
