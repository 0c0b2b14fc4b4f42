package queue_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/queue"
)

// pair is a queue and the slice that it is to behave like.
type pair struct {
	q    queue.FIFO[int]
	want []int
}

// model drives queues by random operations.
type model struct {
	t    *testing.T
	r    *rand.Rand
	pool queue.Pool[int]
	qs   [2]pair
	next int
}

func (m *model) fresh(n int) (out []int) {
	for range n {
		m.next++
		out = append(out, m.next)
	}
	return out
}

// chunk returns a chunk of n new values that begins somewhere.
func (m *model) chunk(n int) (*queue.Chunk[int], []int) {
	c := m.pool.Get()
	c.Rd = m.r.IntN(queue.Len - n + 1)
	values := m.fresh(n)
	c.N = c.Rd + copy(c.Items[c.Rd:], values)
	return c, values
}

func (m *model) size() int { return 1 + m.r.IntN(queue.Len) }

// ops are the operations on a queue and its model.
var ops = []func(m *model, p, other *pair){
	func(m *model, p, _ *pair) {
		v := m.fresh(1)
		p.q.Push(&m.pool, &v[0])
		p.want = append(p.want, v...)
	},
	func(m *model, p, _ *pair) {
		slot, _ := p.q.Slot(&m.pool)
		require.Zero(m.t, *slot, "a place that was used before is empty")
		*slot = m.fresh(1)[0]
		p.want = append(p.want, *slot)
	},
	func(m *model, p, _ *pair) {
		c, values := m.chunk(m.size())
		empty := p.q.PushChunk(&m.pool, c)
		require.Zero(m.t, empty.N)
		m.pool.Put(empty)
		p.want = append(p.want, values...)
	},
	func(m *model, p, _ *pair) {
		c, values := m.chunk(m.size())
		p.q.Append(&m.pool, c)
		p.want = append(p.want, values...)
	},
	func(m *model, p, _ *pair) {
		c, values := m.chunk(m.size())
		a := m.r.IntN(len(values) + 1)
		p.q.PushRange(&m.pool, c, c.Rd+a, c.N)
		p.want = append(p.want, values[a:]...)
		m.pool.Put(c)
	},
	func(m *model, p, _ *pair) {
		c, values := m.chunk(m.size())
		a := m.r.IntN(len(values) + 1)
		p.q.PushFrontRange(&m.pool, c, c.Rd+a, c.N)
		p.want = append(slices.Clone(values[a:]), p.want...)
		m.pool.Put(c)
	},
	func(m *model, p, _ *pair) {
		if len(p.want) == 0 {
			return
		}
		var v int
		p.q.Pop(&m.pool, &v)
		require.Equal(m.t, p.want[0], v)
		p.want = p.want[1:]
	},
	func(m *model, p, _ *pair) {
		if len(p.want) == 0 {
			return
		}
		n := 1 + m.r.IntN(p.q.Head().Size())
		p.q.Skip(&m.pool, n)
		p.want = p.want[n:]
	},
	func(m *model, p, _ *pair) {
		if len(p.want) == 0 {
			return
		}
		c := p.q.TakeHead()
		require.Equal(m.t, p.want[:c.Size()], c.Items[c.Rd:c.N])
		p.want = p.want[c.Size():]
		m.pool.Put(c)
	},
	func(m *model, p, _ *pair) {
		c, values := m.chunk(m.r.IntN(queue.Len/2) + 1)
		n := m.r.IntN(queue.Len + 10)
		room := queue.Len - c.N
		p.q.PopInto(&m.pool, c, n)
		n = min(n, room, len(p.want))
		require.Equal(m.t, append(values, p.want[:n]...), c.Items[c.Rd:c.N])
		p.want = p.want[n:]
		m.pool.Put(c)
	},
	func(_ *model, p, other *pair) {
		p.q.Prepend(&other.q)
		p.want, other.want = append(slices.Clone(other.want), p.want...), nil
	},
	func(_ *model, p, other *pair) {
		p.q.AppendAll(&other.q)
		p.want, other.want = append(p.want, other.want...), nil
	},
	func(m *model, p, _ *pair) {
		mod := 1 + m.r.IntN(5)
		gone := func(v int) bool { return v%mod == 0 }
		before := len(p.want)
		n := p.q.RemoveIf(&m.pool, func(v *int) bool { return gone(*v) })
		p.want = slices.DeleteFunc(slices.Clone(p.want), gone)
		require.Equal(m.t, before-len(p.want), n)
	},
}

// check compares both queues with their models.
func (m *model) check() {
	for i := range m.qs {
		p := &m.qs[i]
		require.Equal(m.t, len(p.want), p.q.Len())
		if len(p.want) == 0 {
			require.Nil(m.t, p.q.Front())
			require.Nil(m.t, p.q.Head())
			continue
		}
		require.Equal(m.t, p.want[0], *p.q.Front())
		var all []int
		p.q.All(func(v *int) bool { all = append(all, *v); return true })
		require.True(m.t, slices.Equal(p.want, all))
	}
}

func TestQueueAgainstAModel(t *testing.T) {
	for seed := range uint64(10) {
		m := &model{t: t, r: rand.New(rand.NewPCG(seed, 0)), pool: queue.NewPool[int](queue.NewShared[int]())}
		for range 1000 {
			at := m.r.IntN(2)
			ops[m.r.IntN(len(ops))](m, &m.qs[at], &m.qs[1-at])
			m.check()
			if len(m.qs[0].want)+len(m.qs[1].want) > 5000 {
				m.qs[0].q.RemoveIf(&m.pool, func(*int) bool { return true })
				m.qs[0].want = nil
			}
		}
	}
}

func TestAllStops(t *testing.T) {
	pool := queue.NewPool[int](queue.NewShared[int]())
	var q queue.FIFO[int]
	for i := range 200 {
		q.Push(&pool, &i)
	}
	n := 0
	q.All(func(*int) bool { n++; return n < 100 })
	require.Equal(t, 100, n)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	pool := queue.NewPool[int](queue.NewShared[int]())
	var q queue.FIFO[int]
	v := 1
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		for range 3 * queue.Len {
			q.Push(&pool, &v)
		}
		for q.Len() > 0 {
			q.Pop(&pool, &v)
		}
	}))
}

// held fills a queue with pointers and empties it again by f; all that were in
// it are returned as weak pointers.
func held(f func(q *queue.FIFO[*[64]byte], p *queue.Pool[*[64]byte])) (q *queue.FIFO[*[64]byte], p *queue.Pool[*[64]byte], ws []weak.Pointer[[64]byte]) {
	pool := queue.NewPool[*[64]byte](queue.NewShared[*[64]byte]())
	q, p = &queue.FIFO[*[64]byte]{}, &pool
	for range 3*queue.Len + 7 {
		v := new([64]byte)
		ws = append(ws, weak.Make(v))
		q.Push(p, &v)
	}
	f(q, p)
	return q, p, ws
}

// What was taken out is not kept reachable by the chunk that it was in.
func TestEmptiedQueuesKeepNothingAlive(t *testing.T) {
	type ptr = *[64]byte
	for name, f := range map[string]func(q *queue.FIFO[ptr], p *queue.Pool[ptr]){
		"pop": func(q *queue.FIFO[ptr], p *queue.Pool[ptr]) {
			var v ptr
			for q.Len() > 1 {
				q.Pop(p, &v)
			}
		},
		"skip": func(q *queue.FIFO[ptr], p *queue.Pool[ptr]) {
			for q.Len() > 1 {
				q.Skip(p, min(q.Len()-1, q.Head().Size()))
			}
		},
		"pop into": func(q *queue.FIFO[ptr], p *queue.Pool[ptr]) {
			for q.Len() > 1 {
				c := p.Get()
				q.PopInto(p, c, q.Len()-1)
				p.Put(c)
			}
		},
		"take head": func(q *queue.FIFO[ptr], p *queue.Pool[ptr]) {
			for q.Len() > 7 {
				p.Put(q.TakeHead())
			}
			q.Skip(p, 6)
		},
		"remove": func(q *queue.FIFO[ptr], p *queue.Pool[ptr]) {
			n := q.Len()
			q.RemoveIf(p, func(*ptr) bool { n--; return n > 0 })
		},
		"given back": func(q *queue.FIFO[ptr], p *queue.Pool[ptr]) {
			c := q.TakeHead()
			q.PushFrontRange(p, c, 10, 20)
			p.Put(c)
			for q.Len() > 1 {
				q.Skip(p, min(q.Len()-1, q.Head().Size()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, p, ws := held(f)
			require.Equal(t, 1, q.Len())
			runtime.GC()
			alive := 0
			for _, w := range ws {
				if w.Value() != nil {
					alive++
				}
			}
			require.Equal(t, 1, alive)
			runtime.KeepAlive(q)
			runtime.KeepAlive(p)
		})
	}
}

func TestRemoveLast(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := queue.NewPool[int](queue.NewShared[int]())
		var q queue.FIFO[int]
		var want []int
		for i := range rnd.IntN(3 * queue.Len) {
			q.Push(&p, &i)
			want = append(want, i)
		}
		for range rnd.IntN(2 * queue.Len) { // so that chunks begin anywhere
			if len(want) > 0 {
				var v int
				q.Pop(&p, &v)
				want = want[1:]
			}
		}
		for len(want) > 0 {
			mod := 1 + rnd.IntN(3)
			match := func(v *int) bool { return *v%mod == 0 }
			at := -1
			for i := range want {
				if match(&want[i]) {
					at = i
				}
			}
			var got int
			ok := q.RemoveLast(&p, &got, match)
			if ok != (at >= 0) {
				t.Fatalf("mod %d of %v: found %v", mod, want, ok)
			}
			if !ok {
				break
			}
			if got != want[at] {
				t.Fatalf("mod %d: removed %d, want %d", mod, got, want[at])
			}
			want = slices.Delete(want, at, at+1)
			var have []int
			q.All(func(v *int) bool { have = append(have, *v); return true })
			if !slices.Equal(have, want) || q.Len() != len(want) {
				t.Fatalf("left %v (%d), want %v", have, q.Len(), want)
			}
			if rnd.IntN(4) == 0 {
				v := 1000 + rnd.IntN(1000)
				q.Push(&p, &v)
				want = append(want, v)
			}
		}
	}
}
