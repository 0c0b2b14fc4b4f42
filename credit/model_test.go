package credit_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/credit"
)

// long is n, or more when SEDA_LONG asks for long runs.
func long(n, more int) int {
	if os.Getenv("SEDA_LONG") != "" {
		return more
	}
	return n
}

// modelAccount is what the model knows of an account.
type modelAccount struct {
	a       *credit.Account
	weight  uint64
	class   int
	want    int
	virtual uint64
	seq     int
	unspent int
	held    int
	until   time.Duration
	counts  credit.Counts
}

// model does what a ledger promises, in the plainest way: it looks through all
// accounts for everything.
type model struct {
	l        *credit.Ledger
	cfg      credit.Config
	window   int
	used     int
	now      time.Duration
	seq      int
	virtual  []uint64
	accounts []*modelAccount
	closed   credit.Counts
}

func (m *model) unspent() int {
	sum := 0
	for _, a := range m.accounts {
		sum += a.unspent
	}
	return sum
}

func (m *model) free() int { return max(m.window-m.used-m.unspent(), 0) }

// next returns the first of those that want credits in the one class that
// wants some; with several classes only the order within each is modelled.
func (m *model) next(class int) *modelAccount {
	var best *modelAccount
	for _, a := range m.accounts {
		if a.want == 0 || a.class != class {
			continue
		}
		if best == nil || a.virtual < best.virtual || a.virtual == best.virtual && a.seq < best.seq {
			best = a
		}
	}
	return best
}

func (m *model) want(a *modelAccount, n int) {
	if a.want == 0 && n > 0 {
		m.seq++
		a.seq = m.seq
		a.virtual = max(a.virtual, m.virtual[a.class])
	}
	a.want = n
	m.l.Want(a.a, n)
}

func (m *model) grant(t require.TestingT, a *modelAccount, n int) {
	got := m.l.Grant(a.a, n, m.now)
	n = min(n, m.free())
	if n <= 0 || n < a.want {
		n = 0
	}
	require.Equal(t, n, got)
	if n == 0 {
		return
	}
	if a.want == 0 {
		a.virtual = max(a.virtual, m.virtual[a.class])
	}
	m.virtual[a.class] = max(m.virtual[a.class], a.virtual)
	a.virtual += uint64(n) << 20 / a.weight
	a.want = 0
	a.unspent += n
	a.counts.Granted += uint64(n)
	a.until = m.now + m.cfg.Lease
}

func (a *modelAccount) giveBack(n int) int {
	n = min(n, a.unspent)
	a.unspent -= n
	a.held = min(a.held, a.unspent)
	a.counts.Returned += uint64(n)
	a.virtual -= min(uint64(n)<<20/a.weight, a.virtual)
	return n
}

func (m *model) step(t require.TestingT, op, who, n byte) {
	count := int(n % 24)
	if len(m.accounts) == 0 || op%16 == 0 && len(m.accounts) < 12 {
		c := credit.AccountConfig{Weight: 1 + int(n%7), Class: int(who) % len(m.virtual)}
		a, err := m.l.Open(c)
		require.NoError(t, err)
		m.accounts = append(m.accounts, &modelAccount{a: a, weight: uint64(c.Weight), class: c.Class})
		return
	}
	i := int(who) % len(m.accounts)
	a := m.accounts[i]
	switch op % 16 {
	case 1:
		m.l.Close(a.a)
		m.l.Close(a.a)
		a.giveBack(a.unspent)
		a.counts.Outstanding = 0
		require.Equal(t, a.counts, a.a.Counts())
		m.closed = add(m.closed, a.counts)
		m.accounts = append(m.accounts[:i], m.accounts[i+1:]...)
	case 2, 3:
		m.want(a, count)
	case 4, 5, 6: // as an owner does it
		if next := m.l.Next(); next != nil {
			for _, b := range m.accounts {
				if b.a == next {
					a = b
				}
			}
			require.Same(t, m.next(a.class).a, next)
			if free := m.free(); a.want <= free {
				m.grant(t, a, a.want+m.l.Ahead(a.a, free-a.want))
			}
		}
	case 7: // out of turn
		m.grant(t, a, count)
	case 8, 9:
		count = min(count, a.unspent)
		require.Equal(t, count, m.l.Spend(a.a, count))
		a.unspent -= count
		a.held = max(a.held-count, 0)
		a.counts.Spent += uint64(count)
		m.used += count
	case 10:
		require.Equal(t, a.giveBack(count), m.l.Return(a.a, count))
	case 11:
		m.l.Hold(a.a, count)
		a.held = min(a.held+count, a.unspent)
	case 12, 13:
		m.l.Release(count)
		m.used = max(m.used-count, 0)
	case 14:
		m.resize(who, count)
	case 15:
		m.pass(t, time.Duration(n)*10*time.Millisecond)
	}
}

// resize changes the window, or what came in without a credit.
func (m *model) resize(who byte, count int) {
	switch who % 3 {
	case 0:
		m.l.SetWindow(count * 4)
		m.window = count * 4
	case 1:
		m.l.Use(count)
		m.used += count
	case 2:
		m.l.SetUsed(count)
		m.used = count
	}
}

// pass lets time go by.
func (m *model) pass(t require.TestingT, d time.Duration) {
	m.now += d
	var next time.Duration
	sum := 0
	lost := make(map[*credit.Account]int)
	for _, a := range m.accounts {
		if a.unspent == 0 {
			continue
		}
		if a.until > m.now {
			if next == 0 || a.until < next {
				next = a.until
			}
			continue
		}
		lost[a.a] = a.unspent
		a.counts.Expired += uint64(a.unspent)
		sum += a.unspent
		a.unspent, a.held = 0, 0
	}
	n, end := m.l.Expire(m.now, func(a *credit.Account, n int) {
		require.Equal(t, lost[a], n)
		delete(lost, a)
	})
	require.Empty(t, lost)
	require.Equal(t, sum, n)
	require.Equal(t, next, end)
}

func add(a, b credit.Counts) credit.Counts {
	return credit.Counts{
		Granted: a.Granted + b.Granted, Spent: a.Spent + b.Spent, Returned: a.Returned + b.Returned,
		Expired: a.Expired + b.Expired, Outstanding: a.Outstanding + b.Outstanding,
	}
}

// verify holds the ledger to the model.
func (m *model) verify(t require.TestingT) {
	require.NoError(t, m.l.Check())
	sum, waiting := m.closed, 0
	for _, a := range m.accounts {
		a.counts.Outstanding = a.unspent
		require.Equal(t, a.counts, a.a.Counts())
		require.Equal(t, a.counts.Granted, a.counts.Spent+a.counts.Returned+a.counts.Expired+uint64(a.unspent))
		require.Equal(t, a.want, a.a.Wanted())
		keep := min(a.unspent, a.held+min(m.cfg.Exclusive, m.window/(2*len(m.accounts))))
		if a.until <= m.now {
			keep = 0
		}
		require.Equal(t, keep, m.l.Keep(a.a, m.now))
		sum = add(sum, a.counts)
		if a.want > 0 {
			waiting++
		}
	}
	require.Equal(t, sum, m.l.Counts())
	require.Equal(t, [6]int{m.window, m.used, m.unspent(), m.free(), len(m.accounts), waiting},
		[6]int{m.l.Window(), m.l.Used(), m.l.Unspent(), m.l.Free(), m.l.Live(), m.l.Waiting()})
	require.Equal(t, waiting == 0, m.l.Next() == nil)
}

// play runs a program of three bytes a step on a ledger and the model, and
// compares them after each.
func play(t require.TestingT, program []byte) {
	if len(program) == 0 {
		return
	}
	c := credit.Config{Window: int(program[0]), Exclusive: 1 + int(program[0])%4, Batch: 8, Lease: time.Second}
	classes := 1 + int(program[0])%3
	if classes > 1 {
		for i := range classes {
			c.Classes = append(c.Classes, credit.Class{MinShare: 10 * i})
		}
	}
	l, err := credit.NewLedger(c)
	require.NoError(t, err)
	m := &model{l: l, cfg: c, window: c.Window, virtual: make([]uint64, classes)}
	for p := program[1:]; len(p) >= 3; p = p[3:] {
		m.step(t, p[0], p[1], p[2])
		m.verify(t)
	}
	for _, a := range m.accounts {
		a.giveBack(a.unspent)
		l.Close(a.a)
		m.closed = add(m.closed, a.counts)
	}
	m.closed.Outstanding = 0
	require.Equal(t, m.closed, l.Counts())
	require.Zero(t, l.Unspent()+l.Waiting()+l.Live())
}

// lean is a TestingT that costs less than testing.T.
type lean struct{ t *testing.T }

func (l lean) Errorf(format string, args ...any) { l.t.Errorf(format, args...) }
func (l lean) FailNow()                          { l.t.FailNow() }

// TestLedgerModel plays random programs against the model.
func TestLedgerModel(t *testing.T) {
	for seed := range uint64(long(10_000, 100_000)) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		program := make([]byte, 1+3*40)
		for i := range program {
			program[i] = byte(rnd.Uint32())
		}
		play(lean{t}, program)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzLedger plays programs that the fuzzer makes up.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{20, 0, 0, 1, 2, 0, 5, 4, 0, 0, 8, 0, 3, 12, 0, 2})
	f.Add([]byte{31, 0, 1, 1, 0, 0, 3, 2, 0, 9, 2, 1, 9, 4, 0, 0, 14, 0, 1, 15, 0, 200, 1, 0, 0})
	f.Fuzz(func(t *testing.T, program []byte) {
		play(t, program[:min(len(program), 3*500+1)])
	})
}
