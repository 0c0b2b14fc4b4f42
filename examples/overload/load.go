package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// outcome is what became of the requests of one run.
type outcome struct {
	sent, inTime, late, refused, failed int
	unsent                              int // due while too many were without an answer

	latencies []time.Duration // of those that were served, sorted
}

// quantile is that of the latencies, 0 if nothing was served.
func (o *outcome) quantile(q float64) time.Duration {
	if len(o.latencies) == 0 {
		return 0
	}
	return o.latencies[min(int(q*float64(len(o.latencies))), len(o.latencies)-1)]
}

// hammer sends requests at random times, perSecond of them on average, whatever
// becomes of them: latencies count from when a request was due, so that a slow
// service does not slow down those who ask. It returns when all are answered.
func hammer(ctx context.Context, o *options, client *http.Client, url string, perSecond float64) *outcome {
	var (
		mu  sync.Mutex
		out outcome
		wg  sync.WaitGroup
	)
	rnd := rand.New(rand.NewPCG(o.seed, 0))
	places := make(chan struct{}, o.outstanding)
	began := time.Now()
	for due := time.Duration(0); ; {
		due += time.Duration(rnd.ExpFloat64() / perSecond * float64(time.Second))
		if due >= o.length || !waitUntil(ctx, began.Add(due)) {
			break
		}
		select {
		case places <- struct{}{}:
		default:
			out.unsent++
			continue
		}
		out.sent++
		wg.Go(func() {
			status, err := get(ctx, client, url)
			took := time.Since(began.Add(due))
			<-places
			mu.Lock()
			defer mu.Unlock()
			out.count(o, status, err, took)
		})
	}
	wg.Wait()
	slices.Sort(out.latencies)
	return &out
}

// count adds one answer.
func (o *outcome) count(opt *options, status int, err error, took time.Duration) {
	switch {
	case err != nil:
		o.failed++
	case status == opt.status:
		o.refused++
	case status != http.StatusOK:
		o.failed++
	default:
		o.latencies = append(o.latencies, took)
		if took <= opt.patience {
			o.inTime++
		} else {
			o.late++
		}
	}
}

// waitUntil says whether t came before ctx ended.
func waitUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func get(ctx context.Context, client *http.Client, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode, err
}
