package demo

import (
	"context"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/internal/stat"
)

// window is the time over which rates and waits are shown.
const window = time.Second

// watch shows a frame every now and then until ctx ends, and a last one then.
func (r *run) watch(ctx context.Context, view View) {
	if view.Show == nil {
		return
	}
	w := newWatcher(r, view.Every)
	ticker := time.NewTicker(view.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			view.Show(w.frame())
			return
		case <-ticker.C:
			view.Show(w.frame())
		}
	}
}

// watcher makes frames. It is for one goroutine.
type watcher struct {
	run   *run
	stats bus.Stats
	sums  reading
	past  []sample // a ring: the oldest is at next
	next  int
}

// sample is what is kept of earlier frames.
type sample struct {
	at    time.Time
	sides []sideSample
}

type sideSample struct {
	offered, inTime uint64
	wait            stat.Histogram
	stages          []stageSample
}

type stageSample struct {
	left uint64
	wait bus.Timing
}

func newWatcher(r *run, every time.Duration) *watcher {
	w := &watcher{run: r, past: make([]sample, max(1, window/every))}
	for i := range w.past {
		w.past[i] = sample{at: r.start, sides: make([]sideSample, len(r.pipes))}
		for k, p := range r.pipes {
			w.past[i].sides[k].stages = make([]stageSample, len(p.stages))
		}
	}
	return w
}

// frame returns the picture of now.
func (w *watcher) frame() *Frame {
	r, now := w.run, time.Now()
	f := &Frame{Settings: r.settings(), Replay: r.replay, At: now.Sub(r.start)}
	r.progress(f, now)
	oldest := &w.past[w.next]
	w.next = (w.next + 1) % len(w.past)
	for i := range r.pipes {
		f.Sides = append(f.Sides, w.side(i, &oldest.sides[i], now.Sub(oldest.at), f.Measured))
	}
	oldest.at = now
	return f
}

// side tells of pipeline i over the time since old, and then makes old of it.
func (w *watcher) side(i int, old *sideSample, since time.Duration, capacity float64) Side {
	p, now := w.run.pipes[i], &w.sums
	w.run.read(i, now)
	s := Side{Sheds: p.sheds, Refused: now.refused, Dropped: now.dropped}
	s.Account = p.account(&w.stats, now.accepted)
	for k := range w.stats.Stages {
		row := stageRow(&w.stats.Stages[k], &old.stages[k], since)
		s.Depth += row.Depth
		s.Room += row.Capacity
		s.Stages = append(s.Stages, row)
	}
	if since > 0 {
		s.InTime = float64(now.inTime-old.inTime) / since.Seconds()
		s.Possible = float64(now.offered-old.offered) / since.Seconds()
		if capacity > 0 {
			s.Possible = min(s.Possible, capacity)
		}
	}
	wait := now.wait
	wait.Sub(&old.wait)
	s.P50, s.P99 = wait.Quantile(0.5), wait.Quantile(0.99)
	old.inTime, old.offered, old.wait = now.inTime, now.offered, now.wait
	return s
}

// stageRow tells of a stage over the time since old, and then makes old of it.
func stageRow(s *bus.StageStats, old *stageSample, since time.Duration) StageRow {
	row := StageRow{
		Name: s.Name, Depth: s.Depth, Capacity: s.Capacity,
		InFlight: s.InFlight, Concurrency: s.Concurrency,
	}
	left := s.Hopped + s.Completed
	if since > 0 {
		row.Rate = float64(left-old.left) / since.Seconds()
	}
	wait := s.Wait.Since(&old.wait)
	row.P50, row.P99 = wait.Quantile(0.5), wait.Quantile(0.99)
	old.left, old.wait = left, s.Wait
	return row
}

// progress fills in how far the phases are.
func (r *run) progress(f *Frame, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Measured, f.Note = r.mu.measured, r.mu.note
	for _, p := range r.phases {
		g := Progress{Name: p.name, Rate: p.rate, State: p.state}
		switch {
		case p.state == stateWaits:
		case p.state == stateDone || p.length <= 0:
			g.Part = 1
		default:
			g.Part = min(1, float64(now.Sub(p.begun))/float64(p.length))
		}
		if p.name == calibration {
			g.Rate = r.mu.measured
		}
		f.Phases = append(f.Phases, g)
	}
}
