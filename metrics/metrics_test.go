package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/metrics"
)

func newBus(tb testing.TB, name string, stages ...string) *bus.Bus {
	tb.Helper()
	b, err := bus.New(bus.Config{Name: name})
	require.NoError(tb, err)
	for _, s := range stages {
		_, err := b.Stage(s, bus.StageConfig{Capacity: 8, Full: bus.Reject})
		require.NoError(tb, err)
	}
	return b
}

// scraped are the values of one gathering by name{label="value",...}; those of a
// histogram are its count.
func scraped(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[key(f.GetName(), m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func key(name string, m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		name += " " + l.GetName() + "=" + l.GetValue()
	}
	return name
}

func TestNamesAndUnitsAreClean(t *testing.T) {
	c, err := metrics.New(newBus(t, "a", "parse"), metrics.Options{})
	require.NoError(t, err)
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestEverySeriesIsThereWithZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, "a", "parse")
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, metrics.Register(reg, metrics.Options{}, b))
		before := scraped(t, reg)
		for _, name := range []string{
			"seda_stage_completed_total bus=a stage=parse", "seda_stage_refused_total bus=a reason=full stage=parse",
			"seda_stage_dropped_total bus=a reason=evicted stage=parse", "seda_stage_wait_seconds bus=a stage=parse",
			"seda_bus_letters bus=a", "seda_bus_refused_total bus=a reason=no_stage",
		} {
			require.Contains(t, before, name)
			require.Zero(t, before[name], name)
		}
		use(t, b, 20)
		after := scraped(t, reg)
		require.Len(t, after, len(before), "use makes no new series")
		require.NoError(t, b.Close())
	})
}

// use publishes n envelopes to the stage parse, of which the handler takes all
// that find room, and some to nowhere.
func use(t *testing.T, b *bus.Bus, n int) {
	t.Helper()
	s, ok := b.Lookup("parse")
	require.True(t, ok)
	require.NoError(t, s.Handle(func(context.Context, *bus.Envelope) error {
		time.Sleep(3 * time.Millisecond)
		return nil
	}))
	require.NoError(t, b.Start())
	for range n {
		_ = b.Publish(t.Context(), "parse", &bus.Envelope{}) // refused when full: counted
	}
	require.Error(t, b.Publish(t.Context(), "nowhere", &bus.Envelope{}))
	time.Sleep(time.Second)
	synctest.Wait()
}

func TestAccountBalancesInWhatIsScraped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, "a", "parse")
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, metrics.Register(reg, metrics.Options{}, b))
		use(t, b, 20)
		got := scraped(t, reg)
		stage := func(name string) float64 { return got["seda_stage_"+name+" bus=a stage=parse"] }
		refused := got["seda_stage_refused_total bus=a reason=full stage=parse"]
		require.Positive(t, refused)
		require.InDelta(t, 20, stage("accepted_total")+refused, 0)
		require.InDelta(t, stage("accepted_total"), stage("completed_total"), 0)
		require.InDelta(t, stage("entered_total"), stage("completed_total")+stage("hopped_total")+stage("dead_lettered_total")+
			stage("abandoned_total")+stage("depth")+stage("in_flight"), 0)
		require.InDelta(t, stage("completed_total"), stage("service_seconds"), 0)
		require.InDelta(t, got["seda_bus_accepted_total bus=a"], got["seda_bus_completed_total bus=a"], 0)
		require.InDelta(t, 1, got["seda_bus_refused_total bus=a reason=no_stage"], 0)
		require.NoError(t, b.Close())
	})
}

func TestHistogramHasTwelveBucketsAndIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, "a", "parse")
		c, err := metrics.New(b, metrics.Options{})
		require.NoError(t, err)
		use(t, b, 1)
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(c))
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() != "seda_stage_service_seconds" {
				continue
			}
			h := f.GetMetric()[0].GetHistogram()
			require.Len(t, h.GetBucket(), 11, "and +Inf")
			require.InDelta(t, 0.003, h.GetSampleSum(), 1e-9)
			for _, bucket := range h.GetBucket() {
				want := uint64(0)
				if bucket.GetUpperBound() >= 0.005 {
					want = 1
				}
				require.Equal(t, want, bucket.GetCumulativeCount(), bucket.GetUpperBound())
			}
			require.NoError(t, b.Close())
			return
		}
		t.Fatal("no histogram")
	})
}

func TestNoHistograms(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, metrics.Register(reg, metrics.Options{NoHistograms: true}, newBus(t, "a", "parse")))
	got := scraped(t, reg)
	require.NotContains(t, got, "seda_stage_wait_seconds bus=a stage=parse")
	require.Contains(t, got, "seda_stage_depth bus=a stage=parse")
}

func TestB090_SeveralBusesOnOneRegistry(t *testing.T) {
	one, two := newBus(t, "one", "parse"), newBus(t, "two", "parse")
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, metrics.Register(reg, metrics.Options{}, one))
	require.NoError(t, metrics.Register(reg, metrics.Options{NoHistograms: true}, two))
	got := scraped(t, reg)
	require.Contains(t, got, "seda_stage_depth bus=one stage=parse")
	require.Contains(t, got, "seda_stage_depth bus=two stage=parse")

	third := newBus(t, "three", "parse")
	err := metrics.Register(reg, metrics.Options{NoHistograms: true}, third, one)
	require.ErrorIs(t, err, metrics.ErrRegistered)
	require.ErrorContains(t, err, `"one"`)
	require.ErrorContains(t, err, "Config.Name")
	require.NotContains(t, scraped(t, reg), "seda_stage_depth bus=three stage=parse", "all or none")
	require.ErrorIs(t, metrics.Register(reg, metrics.Options{}, nil...), nil)
	require.ErrorIs(t, metrics.Register(reg, metrics.Options{}, nil, third), metrics.ErrNoBus)
}

func TestB091_LabelsAreBounded(t *testing.T) {
	families, err := gather(t, newBus(t, "a", "parse"))
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				require.Contains(t, []string{"bus", "stage", "reason"}, l.GetName(), f.GetName())
			}
		}
	}
}

func gather(t *testing.T, b *bus.Bus) ([]*dto.MetricFamily, error) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, metrics.Register(reg, metrics.Options{}, b))
	return reg.Gather()
}

func TestScrapesAtOnceWhileTheBusWorks(t *testing.T) {
	b := newBus(t, "a", "parse")
	s, _ := b.Lookup("parse")
	require.NoError(t, s.Handle(func(context.Context, *bus.Envelope) error { return nil }))
	require.NoError(t, b.Start())
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, metrics.Register(reg, metrics.Options{}, b))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := 0.0
			for range 20 {
				_ = b.Publish(t.Context(), "parse", &bus.Envelope{})
				now := scraped(t, reg)["seda_stage_entered_total bus=a stage=parse"]
				if now < last {
					t.Errorf("a counter went down from %v to %v", last, now)
				}
				last = now
			}
		})
	}
	wg.Wait()
	require.NoError(t, b.Close())
}

func TestHandlerIsReadOnly(t *testing.T) {
	h, err := metrics.Handler(newBus(t, "one", "parse"), newBus(t, "two"))
	require.NoError(t, err)
	for method, code := range map[string]int{
		http.MethodGet: http.StatusOK, http.MethodHead: http.StatusOK,
		http.MethodPost: http.StatusMethodNotAllowed, http.MethodPatch: http.StatusMethodNotAllowed, http.MethodDelete: http.StatusMethodNotAllowed,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/metrics", http.NoBody))
		require.Equal(t, code, w.Code, method)
		if method == http.MethodGet {
			require.Contains(t, w.Body.String(), `seda_stage_depth{bus="one",stage="parse"} 0`)
			require.Contains(t, w.Body.String(), `seda_bus_pending{bus="two"} 0`)
		}
	}
	_, err = metrics.Handler(nil...)
	require.NoError(t, err)
	_, err = metrics.Handler(nil, newBus(t, "one"))
	require.ErrorIs(t, err, metrics.ErrNoBus)
}

// bare sends the metrics of an earlier collection again.
type bare struct {
	of      prometheus.Collector
	metrics []prometheus.Metric
}

func (b *bare) Describe(ch chan<- *prometheus.Desc) { b.of.Describe(ch) }

func (b *bare) Collect(ch chan<- prometheus.Metric) {
	for _, m := range b.metrics {
		ch <- m
	}
}

// The bare collector sends as many series that are ready made.
func BenchmarkScrape(bm *testing.B) {
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprintf("s%d", i)
	}
	c, err := metrics.New(newBus(bm, "a", names...), metrics.Options{})
	require.NoError(bm, err)
	ch := make(chan prometheus.Metric)
	go func() { c.Collect(ch); close(ch) }()
	ready := bare{of: c}
	for m := range ch {
		ready.metrics = append(ready.metrics, m)
	}
	for name, col := range map[string]prometheus.Collector{"seda": c, "bare": &ready} {
		bm.Run(name, func(bm *testing.B) {
			reg := prometheus.NewRegistry()
			require.NoError(bm, reg.Register(col))
			bm.ReportAllocs()
			for bm.Loop() {
				_, err := reg.Gather()
				require.NoError(bm, err)
			}
		})
	}
}
