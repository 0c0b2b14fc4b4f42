package windowed

import "time"

// sample is completions that are told of together.
type sample struct {
	now     time.Duration
	n       int64
	service float64 // nanoseconds, the sum
}

// bucket is one part of the window.
type bucket struct {
	in          *sample // what Add adds
	n           int64
	service     float64
	first, last time.Duration // when, on the clock of the policy
}

// Add adds the sample. The window hands on a single number, which is not enough.
func (b *bucket) Add(int64) {
	if b.n == 0 {
		b.first = b.in.now
	}
	b.n += b.in.n
	b.service += b.in.service
	b.last = b.in.now
}

// Reset empties the bucket.
func (b *bucket) Reset() { *b = bucket{in: b.in} }

// perSecond is the rate of completions. A bucket usually covers one interval;
// the current one less, and if the window's clock stood still one covers more.
func (b *bucket) perSecond(now, interval time.Duration) float64 {
	covers := min(max(now-b.first, interval/4), interval)
	return float64(b.n) / max(covers, b.last-b.first).Seconds()
}

// figures are what the window says.
type figures struct {
	warm    bool
	rate    float64 // completions a second in the best bucket
	service float64 // nanoseconds, the least mean of the buckets that compare with it
}

// scan goes through the window.
type scan struct {
	now, window time.Duration
	n           int64
	buckets     []*bucket // that are in use
}

func (s *scan) visit(b *bucket) {
	// By the policy's clock a bucket can be out of date where the time of day
	// stood.
	if b.n == 0 || s.now-b.last > s.window {
		return
	}
	s.n += b.n
	s.buckets = append(s.buckets, b)
}

// look renews the figures a few times in the life of a bucket.
func (p *Policy) look(now time.Duration, inFlight int) {
	since := now - p.lookedAt
	if p.looked && since >= 0 && since < p.interval/8 {
		return
	}
	p.looked, p.lookedAt = true, now
	p.scan.now, p.scan.window = now, p.cfg.Window
	p.scan.n, p.scan.buckets = 0, p.scan.buckets[:0]
	p.window.Reduce(p.reduce)
	need := p.cfg.Samples
	if need == 0 {
		need = p.workers + DefaultWarm
	}
	switch {
	case p.scan.n >= int64(need):
		p.known = p.scan.figures(p.interval)
	case inFlight < p.workers:
		p.known = figures{} // idle or a trickle: too few to judge by
	default:
		// Whatever is in service does not end: what was known still bounds the
		// queue behind it.
	}
}

func (s *scan) figures(interval time.Duration) figures {
	f := figures{warm: true}
	for _, b := range s.buckets {
		f.rate = max(f.rate, b.perSecond(s.now, interval))
	}
	f.service = -1
	for _, b := range s.buckets {
		mean := b.service / float64(b.n)
		if b.perSecond(s.now, interval) >= f.rate/2 && (f.service < 0 || mean < f.service) {
			f.service = mean
		}
	}
	return f
}
