package bus

import (
	"sync"
	"time"
)

// forecast says how many envelopes that were admitted elsewhere will arrive at
// a stage. It keeps when each is expected instead of following it: whatever
// happens to one on its way, nothing has to be taken back, and an error lasts
// no longer than the way takes.
type forecast struct {
	mu struct {
		sync.Mutex

		ring [forecastCells]cell // by time, from head on
		head int
		n    int
	}
}

// forecastCells bounds the memory; expectations closer together than a part of
// the way share a cell.
const forecastCells = 64

type cell struct {
	at time.Duration
	n  int
}

// add expects one envelope in transit from now.
func (f *forecast) add(now, transit time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(now)
	at := now + transit
	i := f.mu.n // behind the cells that are no later: mostly the last
	for i > 0 && f.cell(i-1).at > at {
		i--
	}
	if i > 0 && (at-f.cell(i-1).at < transit/(forecastCells/2) || f.mu.n == forecastCells) {
		f.cell(i-1).n++
		return
	}
	if f.mu.n == forecastCells {
		f.cell(0).n++
		return
	}
	f.mu.n++
	for k := f.mu.n - 1; k > i; k-- {
		*f.cell(k) = *f.cell(k - 1)
	}
	*f.cell(i) = cell{at: at, n: 1}
}

func (f *forecast) cell(i int) *cell { return &f.mu.ring[(f.mu.head+i)%forecastCells] }

// count is how many are expected after now, within transit.
func (f *forecast) count(now, transit time.Duration) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(now)
	for i := 0; i < f.mu.n && f.cell(i).at <= now+transit; i++ {
		n += f.cell(i).n
	}
	return n
}

func (f *forecast) dropLocked(now time.Duration) {
	for f.mu.n > 0 {
		if f.cell(0).at > now {
			return
		}
		f.mu.head = (f.mu.head + 1) % forecastCells
		f.mu.n--
	}
}
