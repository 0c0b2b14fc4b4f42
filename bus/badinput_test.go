package bus_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

func acknowledge(context.Context, *bus.Envelope) error { return nil }

// requireRefused checks everything that a refusal promises.
func requireRefused(t *testing.T, err error, stage string, why reason.Reason, sentinel error) {
	t.Helper()
	require.ErrorIs(t, err, bus.ErrRejected)
	require.ErrorIs(t, err, sentinel)
	rejected, ok := errors.AsType[*bus.RejectedError](err)
	require.True(t, ok)
	require.Equal(t, stage, rejected.Stage)
	require.Equal(t, why, rejected.Reason)
	require.Contains(t, err.Error(), stage)
	require.Contains(t, err.Error(), why.String())
}

// requireRefusals checks the counts of all reasons, on the bus or a stage.
func requireRefusals(t *testing.T, have [reason.Count]uint64, want map[reason.Reason]uint64) {
	t.Helper()
	for i, n := range have {
		require.Equal(t, want[reason.Reason(i)], n, "refused{%v}", reason.Reason(i))
	}
}

// badSettings are settings out of their bounds, each with the name and the
// value that the error must tell.
var badSettings = map[string]struct {
	c    bus.StageConfig
	told []string
}{
	"capacity":        {bus.StageConfig{Capacity: -1}, []string{"Capacity", "-1"}},
	"huge capacity":   {bus.StageConfig{Capacity: math.MaxInt}, []string{"Capacity", "9223372036854775807", "1073741824"}},
	"concurrency":     {bus.StageConfig{Concurrency: -5}, []string{"Concurrency", "-5"}},
	"huge concurrent": {bus.StageConfig{Concurrency: 1<<20 + 1}, []string{"Concurrency", "1048577", "1048576"}},
	"batch":           {bus.StageConfig{Batch: 65}, []string{"Batch", "65", "64"}},
	"egress":          {bus.StageConfig{EgressCap: -1}, []string{"EgressCap", "-1"}},
	"window":          {bus.StageConfig{DedupWindow: math.MinInt}, []string{"DedupWindow"}},
	"waiters":         {bus.StageConfig{MaxWaiters: -1}, []string{"MaxWaiters"}},
	"outstanding":     {bus.StageConfig{Pull: true, MaxOutstanding: -2}, []string{"MaxOutstanding", "-2"}},
	"no pull":         {bus.StageConfig{MaxOutstanding: 2}, []string{"MaxOutstanding", "Pull"}},
	"lease":           {bus.StageConfig{Lease: time.Second}, []string{"Lease", "Pull"}},
	"hop timeout":     {bus.StageConfig{HopTimeout: -time.Second}, []string{"HopTimeout", "-1s"}},
	"huge timeout":    {bus.StageConfig{HandlerTimeout: math.MaxInt64}, []string{"HandlerTimeout"}},
	"delivery":        {bus.StageConfig{Delivery: 9}, []string{"Delivery", "9", "pub/sub"}},
	"full":            {bus.StageConfig{Full: 200}, []string{"Full", "200", "credit"}},
	"order":           {bus.StageConfig{Order: 3}, []string{"Order", "3"}},
	"no handler":      {bus.StageConfig{NoHandler: 3}, []string{"NoHandler", "3"}},
	"factor NaN":      {bus.StageConfig{Retry: retry.Policy{Kind: retry.Exponential, Factor: math.NaN()}}, []string{"Retry", "Factor", "NaN"}},
	"factor infinite": {bus.StageConfig{Retry: retry.Policy{Kind: retry.Exponential, Factor: math.Inf(1)}}, []string{"Factor", "+Inf"}},
	"attempts":        {bus.StageConfig{Retry: retry.Policy{MaxAttempts: -1}}, []string{"MaxAttempts", "-1"}},
	"elapsed":         {bus.StageConfig{Retry: retry.Policy{MaxElapsed: -1}}, []string{"MaxElapsed"}},
	"class name":      {bus.StageConfig{Classes: []bus.Class{{Name: "a/b"}}}, []string{"Classes[0].Name", "a/b"}},
	"class twice":     {bus.StageConfig{Classes: []bus.Class{{Name: "a"}, {Name: "a"}}}, []string{"Classes[1].Name", "unique"}},
	"class share":     {bus.StageConfig{Classes: []bus.Class{{Name: "a", MinShare: 101}}}, []string{"MinShare", "101"}},
	"class shares":    {bus.StageConfig{Classes: []bus.Class{{Name: "a", MinShare: 60}, {Name: "b", MinShare: 60}}}, []string{"Classes", "120"}},
	"too many":        {bus.StageConfig{Classes: make([]bus.Class, 17)}, []string{"Classes", "17", "16"}},
	"class and order": {bus.StageConfig{Classes: []bus.Class{{Name: "a"}}, Order: bus.ByKey}, []string{"Order", "Classes"}},
	"topic pull":      {bus.StageConfig{Delivery: bus.PubSub, Pull: true}, []string{"Pull", "pub/sub"}},
	"letters to self": {bus.StageConfig{DeadLetterTo: "bad"}, []string{"DeadLetterTo", "bad"}},
	"letters to none": {bus.StageConfig{DeadLetterTo: "gone"}, []string{"DeadLetterTo", "gone"}},
}

func TestBadSettingsAreNamedAtRegistration(t *testing.T) {
	for name, c := range badSettings {
		t.Run(name, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			_, err := b.Stage("bad", c.c)
			require.ErrorIs(t, err, bus.ErrInvalid)
			for _, text := range append(c.told, `"bad"`) {
				require.Contains(t, err.Error(), text)
			}
			require.Empty(t, b.Stages(), "nothing was registered")
			_, err = b.Stage("bad", bus.StageConfig{})
			require.NoError(t, err)
			finish(t, b)
		})
	}
}

func TestBadSettingsChangeNothingInTune(t *testing.T) {
	for name, c := range badSettings {
		t.Run(name, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			s := addStage(t, b, "bad", bus.StageConfig{Capacity: 7}, nil)
			before := s.Config()
			err := s.Tune(func(next *bus.StageConfig) { *next = c.c })
			require.Error(t, err)
			require.True(t, errors.Is(err, bus.ErrInvalid) || errors.Is(err, bus.ErrConflict), err)
			require.Equal(t, before, s.Config())
			finish(t, b)
		})
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	b := newBus(t, bus.Config{})
	_, err := b.Stage("../x", bus.StageConfig{
		Capacity: -1, Concurrency: -1, HopTimeout: -1, Full: 77,
		Retry: retry.Policy{MaxAttempts: -1, Base: -1},
	})
	require.ErrorIs(t, err, bus.ErrInvalid)
	for _, field := range []string{"../x", "Capacity", "Concurrency", "HopTimeout", "Full", "MaxAttempts", "Base"} {
		require.Contains(t, err.Error(), field)
	}
	finish(t, b)
}

func TestBadConfig(t *testing.T) {
	_, err := bus.New(bus.Config{
		Name: "a/b", MaxHandlers: -1, Grace: -1, Journal: journalFunc(nil),
		DeadLetters: bus.LetterBounds{MaxCount: -1, MaxBytes: -1, MaxAge: -1},
	})
	require.ErrorIs(t, err, bus.ErrInvalid)
	for _, field := range []string{"Name", "MaxHandlers", "Grace", "Journal", "MaxCount", "MaxBytes", "MaxAge"} {
		require.Contains(t, err.Error(), field)
	}
	b := newBus(t, bus.Config{MaxHandlers: 3})
	require.ErrorIs(t, b.Tune(nil), bus.ErrInvalid)
	require.ErrorIs(t, b.Tune(func(c *bus.Config) { c.MaxHandlers, c.DeadLetters.MaxCount = -1, 5 }), bus.ErrInvalid)
	require.ErrorIs(t, b.Tune(func(c *bus.Config) { c.MaxHandlers, c.Grace = 9, time.Hour }), bus.ErrConflict)
	require.ErrorIs(t, b.Tune(func(c *bus.Config) { c.Hooks.Panic = func(bus.PanicInfo) {} }), bus.ErrConflict)
	require.Equal(t, 3, b.Config().MaxHandlers)
	require.Equal(t, 10_000, b.Config().DeadLetters.MaxCount)
	finish(t, b)
}

type journalFunc func([]bus.Entry) error

func (f journalFunc) Append(es []bus.Entry) error { return f(es) }

func TestBadNames(t *testing.T) {
	b := newBus(t, bus.Config{})
	topic := addStage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	for _, name := range []string{
		"", ".", "..", "../x", "a/b", `a\b`, "x\x00y", strings.Repeat("x", 300), "CON", "nul.txt", "\U0001F600", "trailing ", " x", "a..b", "é",
	} {
		_, err := b.Stage(name, bus.StageConfig{})
		require.ErrorIs(t, err, bus.ErrInvalid, name)
		require.Contains(t, err.Error(), "name")
		_, ok := b.Lookup(name)
		require.False(t, ok)
		if full := "topic." + name; name == "" || strings.ContainsAny(name, "/\\\x00 ") {
			_, err = topic.Subscribe(name, bus.StageConfig{}, bus.LagWait, acknowledge)
			require.ErrorIs(t, err, bus.ErrInvalid, full)
		}
	}
	require.Len(t, b.Stages(), 1)
	require.Empty(t, topic.Subscribers())
	finish(t, b)
}

func TestRegisteringAgain(t *testing.T) {
	b := newBus(t, bus.Config{})
	shed := &bustest.Refuse{}
	c := bus.StageConfig{Capacity: 3, Shedder: shed.Shedder(), Classes: []bus.Class{{Name: "a"}}}
	s := addStage(t, b, "s", c, nil)
	again, err := b.Stage("s", c)
	require.NoError(t, err)
	require.Same(t, s, again)
	for field, change := range map[string]func(*bus.StageConfig){
		"Capacity": func(c *bus.StageConfig) { c.Capacity = 4 },
		"Shedder":  func(c *bus.StageConfig) { c.Shedder = new(bustest.Refuse).Shedder() },
		"Classes":  func(c *bus.StageConfig) { c.Classes = nil },
		"Retry":    func(c *bus.StageConfig) { c.Retry.MaxAttempts = 2 },
		"Accepts":  func(c *bus.StageConfig) { c.Accepts = bus.TypeOf[int]() },
	} {
		other := c
		change(&other)
		_, err := b.Stage("s", other)
		require.ErrorIs(t, err, bus.ErrConflict)
		require.Contains(t, err.Error(), field)
		require.Contains(t, err.Error(), `"s"`)
	}
	require.Equal(t, 3, s.Config().Capacity)
	finish(t, b)
}

func TestSettingsReadBackAreACopy(t *testing.T) {
	b := newBus(t, bus.Config{})
	s := addStage(t, b, "s", bus.StageConfig{Classes: []bus.Class{{Name: "a", MinShare: 10}}}, nil)
	s.Config().Classes[0].MinShare = 99
	require.Equal(t, 10, s.Config().Classes[0].MinShare)
	err := s.Tune(func(c *bus.StageConfig) { c.Classes[0].MinShare = 50 })
	require.ErrorIs(t, err, bus.ErrConflict, "classes are not live")
	require.Equal(t, 10, s.Config().Classes[0].MinShare)
	finish(t, b)
}

func TestBadHandlers(t *testing.T) {
	b := newBus(t, bus.Config{})
	s := addStage(t, b, "s", bus.StageConfig{}, nil)
	require.ErrorIs(t, s.Handle(nil), bus.ErrInvalid)
	require.ErrorIs(t, s.Handle(bus.Typed[int](nil)), bus.ErrInvalid)
	require.ErrorIs(t, s.Handle(bus.Bool(nil)), bus.ErrInvalid)
	require.ErrorContains(t, s.Handle(acknowledge, nil), "middleware[0]")
	none := func(bus.Handler) bus.Handler { return nil }
	through := func(h bus.Handler) bus.Handler { return h }
	require.ErrorContains(t, s.Handle(acknowledge, through, none), "middleware[1]")
	require.NoError(t, s.Handle(acknowledge, through))
	require.ErrorIs(t, s.Handle(acknowledge), bus.ErrConflict)
	require.NoError(t, s.RemoveHandler())
	require.NoError(t, s.RemoveHandler(), "without a handler it does nothing")
	require.NoError(t, s.Handle(acknowledge))

	pull := addStage(t, b, "pull", bus.StageConfig{Pull: true}, nil)
	require.ErrorIs(t, pull.Handle(acknowledge), bus.ErrConflict)
	topic := addStage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	require.ErrorIs(t, topic.Handle(acknowledge), bus.ErrConflict)
	finish(t, b)
}

func TestBadSubscribers(t *testing.T) {
	b, other := newBus(t, bus.Config{}), newBus(t, bus.Config{})
	topic := addStage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	plain := addStage(t, b, "plain", bus.StageConfig{}, acknowledge)
	foreign := addStage(t, other, "foreign", bus.StageConfig{}, acknowledge)
	none := func(bus.Handler) bus.Handler { return nil }
	for name, f := range map[string]func() error{
		"nil handler": func() error { _, err := topic.Subscribe("x", bus.StageConfig{}, bus.LagWait, nil); return err },
		"nil middleware": func() error {
			_, err := topic.Subscribe("x", bus.StageConfig{}, bus.LagWait, acknowledge, nil)
			return err
		},
		"empty middleware": func() error {
			_, err := topic.Subscribe("x", bus.StageConfig{}, bus.LagWait, acknowledge, none)
			return err
		},
		"pull with handler": func() error {
			_, err := topic.Subscribe("x", bus.StageConfig{Pull: true}, bus.LagWait, acknowledge)
			return err
		},
		"topic with handler": func() error {
			_, err := topic.Subscribe("x", bus.StageConfig{Delivery: bus.PubSub}, bus.LagWait, acknowledge)
			return err
		},
		"settings": func() error {
			_, err := topic.Subscribe("x", bus.StageConfig{Capacity: -1}, bus.LagWait, acknowledge)
			return err
		},
		"lag":         func() error { _, err := topic.Subscribe("x", bus.StageConfig{}, 9, acknowledge); return err },
		"not a topic": func() error { _, err := plain.Subscribe("x", bus.StageConfig{}, bus.LagWait, acknowledge); return err },
		"nil stage":   func() error { return topic.SubscribeStage(nil, bus.LagWait) },
		"itself":      func() error { return topic.SubscribeStage(topic, bus.LagWait) },
		"foreign":     func() error { return topic.SubscribeStage(foreign, bus.LagWait) },
		"leave plain": func() error { return plain.Unsubscribe("x") },
	} {
		require.ErrorIs(t, f(), bus.ErrInvalid, name)
	}
	require.ErrorIs(t, topic.Unsubscribe("x"), bus.ErrNoStage)
	require.Len(t, b.Stages(), 2, "nothing is left of those that failed")
	require.Empty(t, topic.Subscribers())
	_, err := topic.Subscribe("x", bus.StageConfig{}, bus.LagWait, acknowledge)
	require.NoError(t, err)
	finish(t, b)
	finish(t, other)
}
