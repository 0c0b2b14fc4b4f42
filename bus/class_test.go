package bus_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// classed publishes n envelopes of each class to a suspended stage and returns
// the order in which the classes were served.
func classed(t *testing.T, c bus.StageConfig, n int, classes ...string) (served []string) {
	t.Helper()
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		c.Capacity = n * len(classes)
		s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
			v.add(e.Meta.Class)
			return nil
		})
		s.Suspend(bus.Hold{})
		bustest.Start(t, b)
		for i := range n {
			for _, class := range classes {
				require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i, Meta: &bus.Meta{Class: class}}))
			}
		}
		s.Resume("")
		synctest.Wait()
		served = v.all()
		require.Len(t, served, n*len(classes))
	})
	return served
}

func TestStrictClassesGoFirst(t *testing.T) {
	for _, batch := range []int{0, 1, 64} {
		served := classed(t, bus.StageConfig{Batch: batch, Classes: []bus.Class{
			{Name: "high", Strict: true}, {Name: "mid", Strict: true}, {Name: "low", Strict: true},
		}}, 50, "low", "mid", "high")
		var want []string
		for _, class := range []string{"high", "mid", "low"} {
			for range 50 {
				want = append(want, class)
			}
		}
		require.Equal(t, want, served)
	}
}

func TestClassesGetTheirMinimumShare(t *testing.T) {
	for _, batch := range []int{0, 1, 16} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			served := classed(t, bus.StageConfig{Batch: batch, Classes: []bus.Class{
				{Name: "high"}, {Name: "mid", MinShare: 20}, {Name: "low", MinShare: 10},
			}}, 1000, "low", "mid", "high")
			count := map[string]int{}
			for _, class := range served[:1000] {
				count[class]++
			}
			require.InDelta(t, 200, count["mid"], 32, "%v", count)
			require.InDelta(t, 100, count["low"], 32, "%v", count)
			require.InDelta(t, 700, count["high"], 64, "%v", count)
		})
	}
}

func TestAShareIsNotSavedUp(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		s := bustest.Stage(t, b, "s", bus.StageConfig{Batch: 1, Classes: []bus.Class{
			{Name: "high"}, {Name: "low", MinShare: 50},
		}}, func(_ context.Context, e *bus.Envelope) error {
			v.add(e.Meta.Class)
			return nil
		})
		bustest.Start(t, b)
		high, low := &bus.Meta{Class: "high"}, &bus.Meta{Class: "low"}
		for range 100 { // no low work to serve
			require.NoError(t, s.TryPublish(&bus.Envelope{Meta: high}))
			synctest.Wait()
		}
		s.Suspend(bus.Hold{})
		for range 10 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Meta: low}))
			require.NoError(t, s.TryPublish(&bus.Envelope{Meta: high}))
		}
		s.Resume("")
		synctest.Wait()
		low10 := 0
		for _, class := range v.all()[100:110] {
			if class == "low" {
				low10++
			}
		}
		require.InDelta(t, 5, low10, 1)
	})
}

func TestUnknownClassIsTheLast(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		s := bustest.Stage(t, b, "s", bus.StageConfig{Classes: []bus.Class{
			{Name: "high", Strict: true}, {Name: "low", Strict: true},
		}}, v.noting(""))
		s.Suspend(bus.Hold{})
		bustest.Start(t, b)
		for i, m := range []*bus.Meta{{Class: "what"}, nil, {}, {Class: "low"}, {Class: "high"}} {
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i, Meta: m}))
		}
		s.Resume("")
		synctest.Wait()
		require.Equal(t, []string{"4", "0", "1", "2", "3"}, v.all())
	})
}

func TestDropOldestEvictsFromTheLowestClass(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		var ends endLog
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 3, Full: bus.DropOldest, Classes: []bus.Class{
			{Name: "high", Strict: true}, {Name: "low", Strict: true},
		}}, v.noting(""))
		s.Suspend(bus.Hold{})
		bustest.Start(t, b)
		high, low := &bus.Meta{Class: "high"}, &bus.Meta{Class: "low"}
		for i, m := range []*bus.Meta{high, low, low, high, high, high} {
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i, Meta: m, OnDone: ends.done}))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		require.Equal(t, 3, ends.count(bus.Dropped))
		s.Resume("")
		synctest.Wait()
		require.Equal(t, []string{"3", "4", "5"}, v.all())
	})
}

func TestClassesAreSharedByHandlers(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 4, Capacity: 100, Classes: []bus.Class{
			{Name: "high", Strict: true}, {Name: "low", Strict: true},
		}}, func(_ context.Context, e *bus.Envelope) error {
			v.add(e.Meta.Class)
			time.Sleep(time.Millisecond)
			return nil
		})
		s.Suspend(bus.Hold{})
		bustest.Start(t, b)
		for range 20 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Meta: &bus.Meta{Class: "low"}}))
			require.NoError(t, s.TryPublish(&bus.Envelope{Meta: &bus.Meta{Class: "high"}}))
		}
		s.Resume("")
		time.Sleep(time.Second)
		synctest.Wait()
		for i, class := range v.all() {
			require.Equal(t, i < 20, class == "high", "place %d", i)
		}
	})
}
