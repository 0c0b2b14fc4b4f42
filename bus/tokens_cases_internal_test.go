package bus

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
)

// tokenBus starts a bus in a bubble for f, and shuts it down.
func tokenBus(t *testing.T, c Config, f func(t *testing.T, r *tokenRun)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := New(c)
		require.NoError(t, err)
		require.NoError(t, b.Start())
		f(t, &tokenRun{t: t, b: b})
		_, err = b.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

func pass(context.Context, *Envelope) error { return nil }

func publishAll(t *testing.T, s *Stage, n int, e *Envelope) {
	t.Helper()
	for range n {
		require.NoError(t, s.TryPublish(e))
	}
}

// TestTokensOfRefusedHops: the places that a claim has reserved for hops which
// the next stage then refuses are given back.
func TestTokensOfRefusedHops(t *testing.T) {
	tokenBus(t, Config{}, func(t *testing.T, r *tokenRun) {
		from := r.stage("from", StageConfig{Batch: 64}, pass)
		r.stage("to", StageConfig{Accepts: TypeOf[int](), Capacity: 64}, pass)
		from.Suspend(Hold{})
		publishAll(t, from, 40, &Envelope{Payload: "text", Slip: Via("to")})
		from.Resume("")
		synctest.Wait()
		require.Len(t, r.b.Letters().List(LetterFilter{Reason: reason.Type}), 40)
		checkTokens(t, r.b)
	})
}

// TestTokensOfLeaseWhenCapacityFalls: an unused lease does not count as what
// is above a lowered capacity.
func TestTokensOfLeaseWhenCapacityFalls(t *testing.T) {
	tokenBus(t, Config{}, func(t *testing.T, r *tokenRun) {
		s := r.stage("s", StageConfig{}, pass)
		p := s.Producer()
		require.NoError(t, p.TryPublish(&Envelope{}))
		synctest.Wait()
		require.NoError(t, s.Tune(func(c *StageConfig) { c.Capacity = 1 }))
		checkTokens(t, r.b)
		p.Close()
	})
}

// TestRetriesStayWithinCapacity: hops do not enter beyond a stage's capacity
// for ever because those before them wait for a retry.
func TestRetriesStayWithinCapacity(t *testing.T) {
	tokenBus(t, Config{}, func(t *testing.T, r *tokenRun) {
		const room = 5
		from := r.stage("from", StageConfig{EgressCap: 100}, pass)
		to := r.stage("to", StageConfig{Capacity: room, HopTimeout: time.Hour}, func(_ context.Context, e *Envelope) error {
			if e.Attempt() == 1 {
				return RetryAfter(time.Minute)
			}
			return nil
		})
		publishAll(t, from, 10*room, &Envelope{Slip: Via("to")})
		time.Sleep(time.Second)
		synctest.Wait()
		require.LessOrEqual(t, len(to.Delayed()), room+2, "waiting for their retries")
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		checkTokens(t, r.b)
	})
}

// TestUnsubscribedLaggardHoldsNobody: a topic that waits for a subscriber to
// make room goes on when that one is unsubscribed.
func TestUnsubscribedLaggardHoldsNobody(t *testing.T) {
	tokenBus(t, Config{}, func(t *testing.T, r *tokenRun) {
		topic := r.stage("topic", StageConfig{Delivery: PubSub}, nil)
		got := 0
		_, err := topic.Subscribe("good", StageConfig{}, LagWait, func(context.Context, *Envelope) error { got++; return nil })
		require.NoError(t, err)
		lame, err := topic.Subscribe("lame", StageConfig{Capacity: 1}, LagWait, pass)
		require.NoError(t, err)
		publishAll(t, topic, 1, &Envelope{}) // now it is known to be fast
		synctest.Wait()
		lame.Suspend(Hold{})
		for range 5 {
			publishAll(t, topic, 1, &Envelope{})
			synctest.Wait()
		}
		require.Less(t, got, 6, "the topic waits for the laggard")
		require.NoError(t, topic.Unsubscribe("lame"))
		synctest.Wait()
		require.Equal(t, 6, got)
		lame.Resume("")
		synctest.Wait()
		checkTokens(t, r.b)
	})
}

// TestRemovedHandlerGivesItsShareUp: a permit that was kept for a stage goes to
// one that waits when the stage has no handler any more.
func TestRemovedHandlerGivesItsShareUp(t *testing.T) {
	tokenBus(t, Config{MaxHandlers: 2}, func(t *testing.T, r *tokenRun) {
		gate, started := make(chan struct{}), make(chan int, 2)
		defer synctest.Wait()
		defer close(gate)
		s := r.stage("s", StageConfig{Concurrency: 2}, func(context.Context, *Envelope) error {
			started <- 1
			<-gate
			return nil
		})
		other := r.stage("other", StageConfig{}, pass)
		publishAll(t, s, 2, &Envelope{})
		synctest.Wait()
		require.Len(t, started, 1, "the second permit is kept for the other stage")
		require.NoError(t, other.RemoveHandler())
		synctest.Wait()
		require.Len(t, started, 2)
	})
}

// TestShorterHopTimeoutIsKept: a hop that parks after the timeout was lowered
// does not wait as long as one that came before.
func TestShorterHopTimeoutIsKept(t *testing.T) {
	tokenBus(t, Config{}, func(t *testing.T, r *tokenRun) {
		from := r.stage("from", StageConfig{EgressCap: 10}, pass)
		to := r.stage("to", StageConfig{Capacity: 1, HopTimeout: time.Hour}, pass)
		to.Suspend(Hold{})
		publish := func(n int) {
			for range n { // a place, the one above, and the rest parks
				publishAll(t, from, 1, &Envelope{Slip: Via("to")})
				synctest.Wait()
			}
		}
		publish(3)
		require.NoError(t, to.Tune(func(c *StageConfig) { c.HopTimeout = time.Second }))
		publish(1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, r.b.Letters().List(LetterFilter{Reason: reason.HopTimeout}), 1)
		to.Resume("")
		synctest.Wait()
		checkTokens(t, r.b)
	})
}

// TestWatchdogWaitsForTheStart: a claim of one that has not been started when
// the watchdog looks is looked at again, or its handler could hold up a stage
// of fast ones unseen.
func TestWatchdogWaitsForTheStart(t *testing.T) {
	tokenBus(t, Config{}, func(t *testing.T, r *tokenRun) {
		s := r.stage("s", StageConfig{Batch: 8}, pass)
		s.Suspend(Hold{})
		publishAll(t, s, 1, &Envelope{})
		s.mu.Lock()
		s.mu.holds = holds{}
		require.True(t, r.b.permits.acquire(s))
		ex := s.startLocked(permitSet{bus: &r.b.permits})
		require.True(t, s.claimLocked(ex, r.b.clock.Now(), false))
		s.mu.Unlock()
		require.True(t, s.watchClaims())
		require.True(t, s.watchClaims(), "it has not been started")
		go ex.loop()
		synctest.Wait()
		checkTokens(t, r.b)
	})
}

// TestPlaceAboveLoweredCapacity: a hop gets the place above capacity as soon as
// what is above a lowered capacity has gone.
func TestPlaceAboveLoweredCapacity(t *testing.T) {
	tokenBus(t, Config{}, func(t *testing.T, r *tokenRun) {
		gate := make(chan struct{})
		from := r.stage("from", StageConfig{}, pass)
		to := r.stage("to", StageConfig{HopTimeout: time.Hour}, func(context.Context, *Envelope) error { <-gate; return nil })
		to.Suspend(Hold{})
		publishAll(t, to, 2, &Envelope{})
		require.NoError(t, to.Tune(func(c *StageConfig) { c.Capacity = 1 }))
		publishAll(t, from, 1, &Envelope{Slip: Via("to")})
		synctest.Wait()
		var st Stats
		r.b.ReadStats(&st)
		require.Equal(t, 1, st.Stages[0].Parked)
		to.Resume("") // one is in its handler then, and one waits
		synctest.Wait()
		r.b.ReadStats(&st)
		require.Zero(t, st.Stages[0].Parked)
		close(gate)
		synctest.Wait()
		checkTokens(t, r.b)
	})
}

// TestShutdownSeesWhatGoesBack: an envelope that hops to a stage which the
// shutdown has looked at already is not missed.
func TestShutdownSeesWhatGoesBack(t *testing.T) {
	b, err := New(Config{})
	require.NoError(t, err)
	r := &tokenRun{t: t, b: b}
	first, last := r.stage("first", StageConfig{}, pass), r.stage("last", StageConfig{}, pass)
	require.NoError(t, b.Start())
	pending := make(chan int)
	last.mu.Lock()
	last.mu.count.accepted, last.mu.count.entered = 1, 1
	go func() {
		n, _ := b.pendingNow(t.Context())
		pending <- n
	}()
	for range 1000 {
		runtime.Gosched() // it looks at the first stage, and waits for the last
	}
	first.mu.Lock()
	first.mu.count.entered = 1
	first.mu.Unlock()
	last.mu.count.hopped = 1
	last.mu.Unlock()
	require.Equal(t, 1, <-pending)
	first.mu.Lock()
	first.mu.count.hopped = 1
	first.mu.Unlock()
	last.mu.Lock()
	last.mu.count.entered, last.mu.count.end[0].completed = 2, 1
	last.mu.Unlock()
	_, err = b.Shutdown(t.Context())
	require.NoError(t, err)
}
